"""The coordinator's folder: what `fedcollab federation init` makes; starting, watching and stopping what it describes.

federation.toml   name, host, port, whether secure, deadlines
invitation.toml   what every silo gets: address and certificate; nothing in it is secret
silos/NAME.pub    the public keys of the silos that are admitted
keys/             the federation's authority and the coordinator's certificate; the .key files are secret
app/              the Flower app: no code, it points into fedcollab, which is installed at both ends
flwr/             Flower's own files; the user's are not touched
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcollab import __version__, artefact
from fedcollab.errors import InputError, number
from fedcollab.runtime.absence import Policy
from fedcollab.runtime.flower import keys, processes
from fedcollab.runtime.flower.commands import SEPARATOR
from fedcollab.runtime.flower.config import read_toml

CONNECTION = "federation"
START = 60.0  # seconds for the SuperLink to listen
COMMAND = 120.0  # seconds for one of Flower's commands
POLICY = Policy(wait=20.0)  # a silo that restarts is there again by then
LOCAL = ("127.0.0.1", "localhost", "::1")

APP = f"""\
[project]
name = "fedcollab-federation"
version = "{__version__}"
description = "fedcollab's stages over Flower. No code here: the components are parts of the installed fedcollab."
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedcollab"

[tool.flwr.app.components]
serverapp = "fedcollab.runtime.flower.server:app"
clientapp = "fedcollab.runtime.flower.client:app"

[tool.flwr.app.config]
caller = ""
"""


@dataclass(frozen=True)
class Federation:
    """A federation's folder."""

    folder: Path
    name: str
    host: str
    port: int
    secure: bool = True
    deadline: float = 600.0
    patience: float = 60.0
    policy: Policy = POLICY

    @classmethod
    def read(cls, folder: str | Path) -> Federation:
        """Open a folder that `init` made."""
        folder = Path(folder).absolute()
        if not (folder / "federation.toml").is_file():
            raise InputError(f"`{folder}` is no federation; make one with `fedcollab federation init {folder.name}`")
        content = read_toml(folder / "federation.toml", "federation")
        try:
            return cls(
                folder,
                str(content["name"]),
                str(content["host"]),
                int(content["port"]),
                bool(content["secure"]),
                number("deadline", content.get("deadline", cls.deadline), above=0),
                number("patience", content.get("patience", cls.patience), above=0),
                Policy(
                    content.get("quorum", POLICY.quorum),
                    content.get("retries", POLICY.retries),
                    number("deadline", content.get("deadline", cls.deadline), above=0),
                    content.get("wait", POLICY.wait),
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"`{folder / 'federation.toml'}` lacks or has a wrong {error}") from None

    @classmethod
    def init(cls, folder: str | Path, host: str, port: int, *, secure: bool = True) -> Federation:
        """Make the folder; certificates and all."""
        folder = Path(folder).absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"`{folder}` exists and is not empty; give another folder")
        number("port", port, at_least=1, at_most=65535, whole=True)
        made = cls(folder, folder.name, host, port, secure)
        for part in ("silos", "calls", "app", "flwr"):
            (folder / part).mkdir(parents=True)
        settings = [f"name = {json.dumps(made.name)}", f"host = {json.dumps(host)}", f"port = {port}"]
        settings += [f"secure = {str(secure).lower()}"]
        settings += [f"deadline = {made.deadline:.0f}  # seconds for one round", f"patience = {made.patience:.0f}"]
        settings += [f"quorum = {made.policy.quorum}  # share of the silos asked that must answer; else the run pauses"]
        settings += [
            f"retries = {made.policy.retries}",
            f"wait = {made.policy.wait:.0f}  # seconds before asking again",
        ]
        (folder / "federation.toml").write_text("\n".join(settings) + "\n")
        (folder / "app" / "pyproject.toml").write_text(APP)
        invitation = [f"name = {json.dumps(made.name)}", f"address = {json.dumps(f'{host}:{port}')}"]
        if secure:
            keys.make_certificates(folder / "keys", made.name, host)
            certificate = (folder / "keys" / "ca.crt").read_text()
            invitation += [f'certificate = """\n{certificate}"""']
        else:
            invitation += ["insecure = true"]
        (folder / "invitation.toml").write_text("\n".join(invitation) + "\n")
        (folder / "README.md").write_text(_readme(made))
        return made

    @property
    def admitted(self) -> list[str]:
        """Names of the silos whose keys are here."""
        return sorted(path.stem for path in (self.folder / "silos").glob("*.pub"))

    @property
    def process(self) -> dict[str, Any] | None:
        """The SuperLink that runs for this folder, or None."""
        try:
            noted: dict[str, Any] = json.loads((self.folder / "superlink.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return noted if processes.born(noted["pid"]) == noted["since"] else None

    def env(self) -> dict[str, str]:
        """For Flower's programs."""
        return processes.environment(self.folder / "flwr", {"FEDCOLLAB_FEDERATION": str(self.folder)})

    def start(self) -> None:
        """Start the SuperLink, wait until it listens, and register the admitted silos."""
        if self.process is not None:
            raise InputError(f"the federation `{self.name}` runs already; stop it with `fedcollab federation stop`")
        if processes.listening("127.0.0.1", self.port):
            raise InputError(f"port {self.port} is in use; change it in federation.toml and invitation.toml")
        bind = "127.0.0.1" if self.host in LOCAL else "0.0.0.0"
        command = [processes.program("flower-superlink"), "--host", bind, "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation", "--database", str(self.folder / "flwr" / "link.db")]
        folder = self.folder / "keys"
        if self.secure:
            command += ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / "ca.crt")]
            command += ["--ssl-certfile", str(folder / "server.crt"), "--ssl-keyfile", str(folder / "server.key")]
        else:
            command += ["--insecure"]
        self._connection(self.port)
        pid = processes.start(command, self.folder / "superlink.log", self.env())
        since = processes.born(pid)
        artefact.write_bytes(self.folder / "superlink.json", json.dumps({"pid": pid, "since": since}).encode())
        try:
            self._wait(pid, since)
            self.register(self.admitted)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """End the SuperLink and all that it started; whether there was one."""
        running = self.process
        (self.folder / "superlink.json").unlink(missing_ok=True)
        return running is not None and processes.stop(running["pid"], running["since"])

    def admit(self, key: Path, name: str) -> None:
        """Take a silo's public key in under a name; if the federation runs, at once."""
        content = keys.check_public_key(key)
        if not name.strip() or "/" in name or name.startswith("."):
            raise InputError(f"`name` (={name!r}) must be a name without slashes")
        target = self.folder / "silos" / f"{name}.pub"
        if target.exists() and target.read_bytes() != content:
            raise InputError(f"a silo `{name}` with another key is admitted already")
        target.write_bytes(content)
        if self.process is not None:
            self.register([name])

    def register(self, names: Iterable[str]) -> None:
        """Tell the SuperLink about admitted silos, once each."""
        new = [name for name in names if self.secure and name not in self.nodes()]
        if not new:
            return
        key = {name: str(self.folder / "silos" / f"{name}.pub") for name in new}
        answers = self.flwr(*(["supernode", "register", key[name], CONNECTION, "--name", name] for name in new))
        known = {**self.nodes(), **{n: str(answer["node-id"]) for n, answer in zip(new, answers, strict=True)}}
        artefact.write_bytes(self.folder / "flwr" / "nodes.json", json.dumps(known, indent=1).encode())

    def nodes(self) -> dict[str, str]:
        """Flower's ids of the registered silos, by name."""
        try:
            known: dict[str, str] = json.loads((self.folder / "flwr" / "nodes.json").read_text())
            return known
        except FileNotFoundError:
            return {}

    def status(self) -> dict[str, Any]:
        """Whether it runs, and which silos are connected."""
        running = self.process
        answer = {"name": self.name, "address": f"{self.host}:{self.port}", "secure": self.secure}
        answer |= {"running": running is not None, "silos": dict.fromkeys(self.admitted, "unknown")}
        if running is None:
            return answer
        names = {node: name for name, node in self.nodes().items()}
        (listed,) = self.flwr(["supernode", "list", CONNECTION])
        shown = {names.get(node["node-id"], node["node-id"]): node["status"] for node in listed["nodes"]}
        return {**answer, "silos": shown}

    def run(self, caller: str) -> str:
        """Start a Flower run whose ServerApp will call `caller` back; its id."""
        if self.process is None:
            raise InputError(f"the federation `{self.name}` does not run; `fedcollab federation start {self.folder}`")
        (answer,) = self.flwr(["run", str(self.folder / "app"), CONNECTION, "--run-config", f'caller="{caller}"'])
        return str(answer["run-id"])

    def flwr(self, *commands: list[str]) -> list[dict[str, Any]]:
        """Flower's commands, with their JSON answers."""
        listed = json.dumps([[*arguments, "--format", "json"] for arguments in commands])
        line = [sys.executable, "-m", "fedcollab.runtime.flower.commands", listed]
        try:
            done = subprocess.run(line, env=self.env(), capture_output=True, text=True, timeout=COMMAND, check=False)
        except subprocess.TimeoutExpired:
            raise InputError(f"`flwr {commands[0][0]}` has not answered in {COMMAND:.0f} s") from None
        outputs = done.stdout.split(SEPARATOR)[:-1]
        if len(outputs) < len(commands):
            raise InputError(f"`flwr {commands[0][0]}` failed: {_short(done.stderr)}")
        return [_parse(arguments, output) for arguments, output in zip(commands, outputs, strict=True)]

    def _connection(self, port: int) -> None:
        """How Flower's commands reach the SuperLink."""
        certificate = json.dumps(str(self.folder / "keys" / "ca.crt"))
        security = f"root-certificates = {certificate}" if self.secure else "insecure = true"
        text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        (self.folder / "flwr").mkdir(exist_ok=True)
        (self.folder / "flwr" / "config.toml").write_text(f'{text}address = "127.0.0.1:{port}"\n{security}\n')

    def _wait(self, pid: int, since: str | None) -> None:
        end = time.monotonic() + START
        while not processes.listening("127.0.0.1", self.port):
            if processes.born(pid) != since or time.monotonic() > end:
                tail = (self.folder / "superlink.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise InputError(f"the SuperLink did not start ({' '.join(tail)}); see {self.folder / 'superlink.log'}")
            time.sleep(0.2)


def _parse(arguments: list[str], output: str) -> dict[str, Any]:
    """A command's JSON; one that failed is one clear line."""
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        answer = {"success": False, "error-message": output}
    if not answer.get("success"):
        raise InputError(f"`flwr {' '.join(arguments[:2])}` failed: {_short(answer.get('error-message', answer))}")
    return answer


def _short(text: object) -> str:
    return " ".join(str(text).split())[-400:]


def _readme(federation: Federation) -> str:
    return f"# {federation.name}\n"

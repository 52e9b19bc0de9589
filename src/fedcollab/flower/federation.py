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

from fedcollab import __version__
from fedcollab import files as artefact
from fedcollab.errors import InputError, number
from fedcollab.flower import keys, processes
from fedcollab.flower.commands import SEPARATOR
from fedcollab.flower.config import read_toml
from fedcollab.wire.absence import Policy

CONNECTION = "federation"
START = 180.0  # seconds for the SuperLink to listen
COMMAND = 300.0  # seconds for one of Flower's commands
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
serverapp = "fedcollab.flower.server:app"
clientapp = "fedcollab.flower.client:app"

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
    patience: float = 120.0
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
    def running(self) -> bool:
        """Whether the SuperLink and the gate run."""
        noted = self._noted()
        return bool(noted) and all(processes.born(pid) == since for pid, since in noted)

    def env(self) -> dict[str, str]:
        """For Flower's programs."""
        return processes.environment(self.folder / "flwr", {"FEDCOLLAB_FEDERATION": str(self.folder)})

    def start(self) -> None:
        """Start SuperLink and gate, wait until they listen, and register the admitted silos.

        The SuperLink listens on this machine alone; silos come in through the gate (see `gate.py`).
        """
        if self.running:
            raise InputError(f"the federation `{self.name}` runs already; stop it with `fedcollab federation stop`")
        if processes.listening("127.0.0.1", self.port):
            raise InputError(f"port {self.port} is in use; change it in federation.toml and invitation.toml")
        self.stop()
        inner, folder = processes.free_port(), self.folder / "keys"
        link = [processes.program("flower-superlink"), "--host", "127.0.0.1", "--port", str(inner)]
        link += ["--disable-runtime-dependency-installation", "--database", str(self.folder / "flwr" / "link.db")]
        if self.secure:
            link += ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / "ca.crt")]
            link += ["--ssl-certfile", str(folder / "server.crt"), "--ssl-keyfile", str(folder / "server.key")]
        else:
            link += ["--insecure"]
        bind = "127.0.0.1" if self.host in LOCAL else "0.0.0.0"
        asked = {"host": bind, "port": self.port, "inner": inner, "keys": str(folder) if self.secure else None}
        gate = [sys.executable, "-m", "fedcollab.flower.gate", json.dumps(asked)]
        self._connection(inner)
        try:
            for command, port in ((link, inner), (gate, self.port)):
                pid = processes.start(command, self.folder / "superlink.log", self.env())
                noted = [*self._noted(), (pid, processes.born(pid))]
                artefact.write_bytes(self.folder / "processes.json", json.dumps(noted).encode())
                self._wait(port, *noted[-1])
            self.register(self.admitted)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """End SuperLink and gate and all that they started; whether there were any."""
        stopped = [processes.stop(pid, since) for pid, since in reversed(self._noted())]
        (self.folder / "processes.json").unlink(missing_ok=True)
        return any(stopped)

    def admit(self, key: Path, name: str) -> None:
        """Take a silo's public key in under a name; if the federation runs, at once."""
        content = keys.check_public_key(key)
        keys.check_name(name)
        target = self.folder / "silos" / f"{name}.pub"
        if target.exists() and target.read_bytes() != content:
            raise InputError(f"a silo `{name}` with another key is admitted already")
        target.write_bytes(content)
        if self.running:
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
        running = self.running
        answer = {"name": self.name, "address": f"{self.host}:{self.port}", "secure": self.secure}
        answer |= {"running": running, "silos": dict.fromkeys(self.admitted, "unknown")}
        if not running:
            return answer
        names = {node: name for name, node in self.nodes().items()}
        (listed,) = self.flwr(["supernode", "list", CONNECTION])
        shown = {names.get(node["node-id"], node["node-id"]): node["status"] for node in listed["nodes"]}
        return {**answer, "silos": shown}

    def run(self, caller: str) -> str:
        """Start a Flower run whose ServerApp will call `caller` back; its id."""
        if not self.running:
            raise InputError(f"the federation `{self.name}` does not run; `fedcollab federation start {self.folder}`")
        (answer,) = self.flwr(["run", str(self.folder / "app"), CONNECTION, "--run-config", f'caller="{caller}"'])
        return str(answer["run-id"])

    def flwr(self, *commands: list[str]) -> list[dict[str, Any]]:
        """Flower's commands, with their JSON answers."""
        listed = json.dumps([[*arguments, "--format", "json"] for arguments in commands])
        line = [sys.executable, "-m", "fedcollab.flower.commands", listed]
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

    def _noted(self) -> list[tuple[int, str | None]]:
        """Ids and start times of the processes that `start` started."""
        try:
            return [(pid, since) for pid, since in json.loads((self.folder / "processes.json").read_text())]
        except (FileNotFoundError, ValueError):
            return []

    def _wait(self, port: int, pid: int, since: str | None) -> None:
        end = time.monotonic() + START
        while not processes.listening("127.0.0.1", port):
            if processes.born(pid) != since or time.monotonic() > end:
                tail = (self.folder / "superlink.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise InputError(f"it did not start ({' '.join(tail)}); see {self.folder / 'superlink.log'}")
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
    return README.format(
        name=federation.name,
        address=f"{federation.host}:{federation.port}",
        secure="TLS, and only silos whose key is in silos/."
        if federation.secure
        else "INSECURE: for experiments only.",
    )


README = """\
# The federation {name}

Silos connect to {address}. {secure}

## For the coordinator

    fedcollab federation admit . NORTH.pub      # let a silo in; check with its administrator that the key is theirs
    fedcollab federation start .
    fedcollab federation status .               # who is connected
    fedcollab estimate --on . -o ../runs/{name}/distances.json
    fedcollab solve ../runs/{name}/distances.json --C auto -o ../runs/{name}/collaboration.json
    fedcollab report ../runs/{name}             # show it to the partners; train when they agree
    fedcollab train --on . --coalitions ../runs/{name}/collaboration.json -o ../runs/{name}/training/coalitions
    fedcollab federation stop .

The files in keys/ that end in .key are secret. The certificates are valid for two years.

## For a silo

Its administrator gets invitation.toml (nothing in it is secret) and says, on the machine where the data are:

    pip install 'fedcollab[flower]'
    fedcollab silo init --name north --data patients.csv --label outcome --invitation invitation.toml
    fedcollab silo start

`init` writes silo.toml and makes a key pair; the silo sends north.pub to the coordinator and keeps north.key. Data, its
path and the silo's state stay there. The silo only makes outgoing connections; no port has to be opened.
"""

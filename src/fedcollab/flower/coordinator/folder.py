"""The coordinator's folder: what `fedcollab federation init` makes; starting, watching and stopping what it describes.

federation.toml   name, host, port, whether secure, deadlines
invitation.toml   what every silo gets: address and certificate; nothing in it is secret
silos/NAME.pub    the public keys of the silos that are admitted
keys/             the federation's authority and the coordinator's certificate; the .key files are secret
app/              the Flower app: no code, it points into fedcollab, which is installed at both ends
flwr/             Flower's own files; the user's are not touched
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from fedcollab import __version__
from fedcollab import files as artefact
from fedcollab.errors import InputError, number
from fedcollab.flower import keys, processes
from fedcollab.flower.coordinator import commands
from fedcollab.flower.coordinator.certificates import ends, expiry_warnings, make_certificates, renew_certificate
from fedcollab.flower.processes import ProcessHandle
from fedcollab.flower.protocol import APP_NAME, CLIENT_APP, PROTOCOL, SERVER_APP
from fedcollab.flower.remote import DEADLINE, PATIENCE
from fedcollab.flower.toml import make_struct, read_toml
from fedcollab.wire.absence import Policy

FOLDER = "FEDCOLLAB_FEDERATION"  # the environment variable with the federation's folder, for the ServerApp
CALLER = "caller"  # the run's setting (in a simulation, an environment variable) that names the command's note
CONNECTION = "federation"
START = 180.0  # seconds for the SuperLink to listen
COMMAND = 300.0  # seconds for one of Flower's commands
LOCAL = ("127.0.0.1", "localhost", "::1")
MEMORY = ":flwr-in-memory:"  # the SuperLink's database: silos are registered at every start
GATE = "fedcollab.flower.coordinator.gate"  # started as a program; imports a web server


def _template(name: str) -> str:
    """Return one of the texts from which the folder's files are made."""
    return (Path(__file__).parent / "templates" / name).read_text()


APP = _template("app.toml").format(
    name=APP_NAME, version=__version__, server_app=SERVER_APP, client_app=CLIENT_APP, protocol=PROTOCOL
)
Positive = Annotated[float, Meta(gt=0)]


class FederationFolder(Struct, frozen=True, forbid_unknown_fields=True):
    """A federation's folder on the coordinator's machine; all but `folder` is in its federation.toml.

    Attributes
    ----------
    folder : Path
        The folder.
    name : str
        The federation's name.
    host, port : str, int
        Where silos reach the coordinator.
    secure : bool
        Whether connections use TLS, and silos must be admitted.
    deadline : float
        Seconds for one round.
    patience : float
        Seconds for the silos to connect when a stage starts.
    quorum, retries, wait : float, int, float
        What to do about silos that do not answer: see `Policy`. A silo that restarts is back within `wait`.
    """

    folder: Path
    name: str
    host: str
    port: Annotated[int, Meta(ge=1, le=65535)]
    secure: bool
    deadline: Positive = DEADLINE
    patience: Positive = PATIENCE
    quorum: Annotated[float, Meta(ge=0, le=1)] = Policy.quorum
    retries: Annotated[int, Meta(ge=0)] = Policy.retries
    wait: Annotated[float, Meta(ge=0)] = 20.0

    @classmethod
    def read(cls, folder: str | Path) -> FederationFolder:
        """Open a folder that `init` made.

        Parameters
        ----------
        folder : str or Path
            The folder.

        Returns
        -------
        FederationFolder
            Its settings.

        Raises
        ------
        InputError
            If it is no such folder, or its federation.toml is wrong.
        """
        folder = Path(folder).absolute()
        path = folder / "federation.toml"
        if not path.is_file():
            raise InputError(f"`{folder}` is no federation; make one with `fedcollab federation init {folder.name}`")
        return make_struct(cls, {**read_toml(path, "federation"), "folder": str(folder)}, path)

    @classmethod
    def init(cls, folder: str | Path, host: str, port: int, *, secure: bool = True) -> FederationFolder:
        """Make the folder of a new federation, with certificates and an invitation for the silos.

        Parameters
        ----------
        folder : str or Path
            A folder that does not exist or is empty; its name is the federation's.
        host : str
            Name or address by which the silos reach this machine.
        port : int
            Port that the silos connect to.
        secure : bool
            Whether to use TLS and admit only silos whose key is known.

        Returns
        -------
        FederationFolder
            Its settings.

        Raises
        ------
        InputError
            If the folder is not empty or the port is none.
        """
        folder = Path(folder).absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"`{folder}` exists and is not empty; give another folder")
        number("port", port, at_least=1, at_most=65535, whole=True)
        made = cls(folder, folder.name, host, port, secure)
        for part in ("silos", "calls", "flwr"):
            (folder / part).mkdir(parents=True)
        values = {key: json.dumps(getattr(made, key)) for key in cls.__struct_fields__[1:]}
        (folder / "federation.toml").write_text(_template("federation.toml").format(**values))
        made.write_app()
        security, trust = "INSECURE: for experiments only.", "insecure = true"
        if secure:
            make_certificates(folder / "keys", made.name, host)
            security = "TLS, and only silos whose key is in silos/."
            trust = f'certificate = """\n{(folder / "keys" / "ca.crt").read_text()}"""'
        invitation = f"name = {values['name']}\naddress = {json.dumps(f'{host}:{port}')}\n{trust}\n"
        (folder / "invitation.toml").write_text(invitation)
        guide = _template("README.md").format(name=made.name, address=f"{host}:{port}", security=security)
        (folder / "README.md").write_text(guide)
        return made

    @property
    def policy(self) -> Policy:
        """What to do about silos that do not answer."""
        return Policy(self.quorum, self.retries, self.deadline, self.wait)

    @property
    def admitted(self) -> list[str]:
        """Names of the silos whose keys are here."""
        return sorted(path.stem for path in (self.folder / "silos").glob("*.pub"))

    @property
    def handles(self) -> list[ProcessHandle]:
        """The processes that `start` started: SuperLink and gate."""
        return [ProcessHandle(*noted) for noted in self._read("processes.json") or ()]

    @property
    def running(self) -> bool:
        """Whether the SuperLink and the gate run."""
        noted = self.handles
        return bool(noted) and all(map(processes.alive, noted))

    @property
    def nodes(self) -> dict[str, str]:
        """Flower's ids of the registered silos, by name."""
        return dict(self._read("flwr/nodes.json") or {})

    def env(self) -> dict[str, str]:
        """Return the environment variables for Flower's programs."""
        return processes.environment(self.folder / "flwr", {FOLDER: str(self.folder)})

    def write_app(self) -> None:
        """Write the Flower app that goes to the silos with every run: that of the installed fedcollab."""
        artefact.write_bytes(self.folder / "app" / "pyproject.toml", APP.encode())

    def start(self) -> None:
        """Start SuperLink and gate, wait until they listen, and register the admitted silos.

        The SuperLink listens on this machine alone; silos come in through the gate (see `gate.py`).

        Raises
        ------
        InputError
            If the federation runs already, its port is in use, or one of the programs does not start.
        """
        if self.running:
            raise InputError(f"the federation `{self.name}` runs already; stop it with `fedcollab federation stop`")
        self.stop()  # what is left where one of the two has died
        if processes.listening("127.0.0.1", self.port):
            raise InputError(f"port {self.port} is in use; change it in federation.toml and invitation.toml")
        inner, folder = processes.free_port(), self.folder / "keys"
        link = [processes.program("flower-superlink"), "--host", "127.0.0.1", "--port", str(inner)]
        link += ["--disable-runtime-dependency-installation", "--database", MEMORY]
        files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
        tls = [part for option, name in files.items() for part in (option, str(folder / name))]
        link += ["--enable-supernode-auth", *tls] if self.secure else ["--insecure"]
        bind = "127.0.0.1" if self.host in LOCAL else "0.0.0.0"
        options = {"host": bind, "port": self.port, "inner": inner, "keys": str(folder) if self.secure else None}
        self._write_connection(inner)
        for old in ("nodes.json", "link.db"):  # what an earlier SuperLink knew
            (self.folder / "flwr" / old).unlink(missing_ok=True)
        try:
            for command, port in ((link, inner), ([sys.executable, "-m", GATE, json.dumps(options)], self.port)):
                started = processes.start(command, self.folder / "superlink.log", self.env())
                noted = json.dumps([*self.handles, started]).encode()
                artefact.write_bytes(self.folder / "processes.json", noted)
                self._wait(port, started)
            self.register(self.admitted)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """End SuperLink and gate and all that they started.

        Returns
        -------
        bool
            Whether there were any.
        """
        stopped = [
            processes.stop(handle) or processes.stop_orphans(handle, FOLDER, str(self.folder))
            for handle in reversed(self.handles)
        ]
        (self.folder / "processes.json").unlink(missing_ok=True)
        return any(stopped)

    def admit(self, key: Path, name: str) -> None:
        """Admit a silo; if the federation runs, at once.

        Parameters
        ----------
        key : Path
            The silo's public key file.
        name : str
            The name under which the silo is known.

        Raises
        ------
        InputError
            If the file is no public key, the name cannot be used, or another key is admitted under it.
        """
        content = keys.read_public_key(key)
        keys.check_name(name)
        target = self.folder / "silos" / f"{name}.pub"
        if target.exists() and target.read_bytes() != content:
            raise InputError(f"a silo `{name}` with another key is admitted already")
        target.write_bytes(content)
        if self.running:
            self.register([name])

    def expel(self, name: str) -> None:
        """Take a silo's admission back; if the federation runs, at once. Its key is kept in `expelled/`.

        Parameters
        ----------
        name : str
            The silo.

        Raises
        ------
        InputError
            If no silo of that name is admitted.
        """
        key = self.folder / "silos" / f"{name}.pub"
        if name not in self.admitted:
            raise InputError(f"no silo `{name}` is admitted; there are {', '.join(self.admitted) or 'none'}")
        node = self.nodes.get(name)
        if node is not None and self.running:
            self.flwr(["supernode", "unregister", node, CONNECTION])
            known = {other: number for other, number in self.nodes.items() if other != name}
            artefact.write_bytes(self.folder / "flwr" / "nodes.json", json.dumps(known, indent=1).encode())
        (self.folder / "expelled").mkdir(exist_ok=True)
        key.replace(self.folder / "expelled" / f"{name}-{artefact.now().replace(':', '')}.pub")

    def renew(self) -> None:
        """Make the coordinator's certificate anew; the authority, by which silos know it, stays.

        Raises
        ------
        InputError
            If the federation is insecure or runs, or its authority ends soon too.
        """
        if not self.secure:
            raise InputError(f"the federation `{self.name}` is insecure: it has no certificate")
        if self.running:
            raise InputError(f"the federation `{self.name}` runs; stop it with `fedcollab federation stop` first")
        renew_certificate(self.folder / "keys", self.name, self.host)

    def ends(self) -> str:
        """Return the day on which the coordinator's certificate ends."""
        return f"{ends(self.folder / 'keys' / 'server.crt'):%Y-%m-%d}"

    def warnings(self) -> list[str]:
        """Return a line for each certificate that ends soon."""
        if not self.secure:
            return []
        folder = self.folder / "keys"
        return [
            *expiry_warnings(
                folder / "server.crt", "the coordinator's certificate", f"`fedcollab federation renew {self.folder}`"
            ),
            *expiry_warnings(
                folder / "ca.crt", "the federation's authority", "make a new federation and send new invitations"
            ),
        ]

    def register(self, names: Iterable[str]) -> None:
        """Tell the SuperLink about admitted silos.

        Parameters
        ----------
        names : iterable of str
            Silos that are admitted; those that it knows already are left out.
        """
        new = [name for name in names if self.secure and name not in self.nodes]
        if not new:
            return
        key = {name: str(self.folder / "silos" / f"{name}.pub") for name in new}
        answers = self.flwr(*(["supernode", "register", key[name], CONNECTION, "--name", name] for name in new))
        known = {**self.nodes, **{n: str(answer["node-id"]) for n, answer in zip(new, answers, strict=True)}}
        artefact.write_bytes(self.folder / "flwr" / "nodes.json", json.dumps(known, indent=1).encode())

    def status(self) -> dict[str, Any]:
        """Return whether the federation runs, and which silos are connected.

        Returns
        -------
        dict
            `name`, `address`, `secure`, `running`, `silos` (the state of each silo by name), and `warnings` about
            certificates that end soon.
        """
        running = self.running
        answer = {"name": self.name, "address": f"{self.host}:{self.port}", "secure": self.secure}
        answer |= {"running": running, "silos": dict.fromkeys(self.admitted, "unknown"), "warnings": self.warnings()}
        if not running:
            return answer
        names = {node: name for name, node in self.nodes.items()}
        (listed,) = self.flwr(["supernode", "list", CONNECTION])
        shown = {names.get(node["node-id"], node["node-id"]): node["status"] for node in listed["nodes"]}
        return {**answer, "silos": shown}

    def run(self, caller: str) -> str:
        """Start a Flower run whose ServerApp connects to a command on this machine.

        Parameters
        ----------
        caller : str
            The name of the note that tells where the command listens (see `relay.listen`).

        Returns
        -------
        str
            Flower's id of the run.

        Raises
        ------
        InputError
            If the federation does not run.
        """
        if not self.running:
            raise InputError(f"the federation `{self.name}` does not run; `fedcollab federation start {self.folder}`")
        self.write_app()  # the folder may be older than the installed fedcollab
        (answer,) = self.flwr(["run", str(self.folder / "app"), CONNECTION, "--run-config", f'{CALLER}="{caller}"'])
        return str(answer["run-id"])

    def flwr(self, *calls: list[str]) -> list[dict[str, Any]]:
        """Run several of Flower's commands.

        Parameters
        ----------
        *calls : list of str
            The arguments of each `flwr` command.

        Returns
        -------
        list of dict
            What each prints, as JSON.

        Raises
        ------
        InputError
            If a command fails or takes too long.
        """
        listed = json.dumps([[*arguments, "--format", "json"] for arguments in calls])
        line = [sys.executable, "-m", commands.__name__, listed]
        try:
            done = subprocess.run(line, env=self.env(), capture_output=True, text=True, timeout=COMMAND, check=False)
        except subprocess.TimeoutExpired:
            raise InputError(f"`flwr {calls[0][0]}` has not answered in {COMMAND:.0f} s") from None
        outputs = done.stdout.split(commands.SEPARATOR)[:-1]
        if len(outputs) < len(calls):
            raise InputError(f"`flwr {calls[0][0]}` failed: {_short(done.stderr)}")
        return [_parse(arguments, output) for arguments, output in zip(calls, outputs, strict=True)]

    def _read(self, name: str) -> Any:
        """Return the content of one of the folder's JSON files, or None if it is missing or broken."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.folder / name).read_text())

    def _write_connection(self, port: int) -> None:
        """Write how Flower's commands reach the SuperLink."""
        certificate = json.dumps(str(self.folder / "keys" / "ca.crt"))
        security = f"root-certificates = {certificate}" if self.secure else "insecure = true"
        text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        (self.folder / "flwr").mkdir(exist_ok=True)
        (self.folder / "flwr" / "config.toml").write_text(f'{text}address = "127.0.0.1:{port}"\n{security}\n')

    def _wait(self, port: int, started: ProcessHandle) -> None:
        """Wait until a program listens; raise InputError with the last line of its log if it ends or takes too long."""
        end = time.monotonic() + START
        while not processes.listening("127.0.0.1", port):
            if not processes.alive(started) or time.monotonic() > end:
                tail = (self.folder / "superlink.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise InputError(f"it did not start ({' '.join(tail)}); see {self.folder / 'superlink.log'}")
            time.sleep(0.2)


def _parse(arguments: list[str], output: str) -> dict[str, Any]:
    """Return a command's JSON; raise InputError if it failed."""
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        answer = {"success": False, "error-message": output}
    if not answer.get("success"):
        raise InputError(f"`flwr {' '.join(arguments[:2])}` failed: {_short(answer.get('error-message', answer))}")
    return answer


def _short(text: object) -> str:
    """Return the end of a text on one line."""
    return " ".join(str(text).split())[-400:]

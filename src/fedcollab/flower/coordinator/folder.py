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
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from fedcollab import __version__
from fedcollab import files as artefact
from fedcollab.errors import InputError, number
from fedcollab.flower import keys, processes
from fedcollab.flower.coordinator.certificates import ends, expiry_warnings, make_certificates, renew_certificate
from fedcollab.flower.coordinator.superlink import (
    CONNECTION,
    run_flwr,
    superlink_command,
    wait_until_listening,
    write_connection,
)
from fedcollab.flower.processes import ProcessHandle
from fedcollab.flower.protocol import APP_NAME, CLIENT_APP, PROTOCOL, SERVER_APP
from fedcollab.flower.remote import DEADLINE, PATIENCE
from fedcollab.flower.toml import make_struct, read_toml
from fedcollab.wire.absence import Policy

FOLDER = "FEDCOLLAB_FEDERATION"  # the environment variable with the federation's folder, for the ServerApp
CALLER = "caller"  # the run's setting (in a simulation, an environment variable) that names the command's note
KNOWN = "Public key already in use"  # what Flower says of a key that was registered before, and also after that
EXPELLED = "unregistered"  # Flower's word for the state of such a node
LOCAL = ("127.0.0.1", "localhost", "::1")
PROCESSES = ("SuperLink", "gate")  # in the order in which they are started
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
        return len(noted) == len(PROCESSES) and all(map(processes.alive, noted))

    @property
    def died(self) -> list[str]:
        """Those of the SuperLink and the gate that were started, not stopped, and run no longer."""
        return [what for what, noted in zip(PROCESSES, self.handles, strict=False) if not processes.alive(noted)]

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
        """Start the SuperLink, register the admitted silos with it, start the gate, and wait until it listens.

        The SuperLink listens on this machine alone; silos come in through the gate (see `gate.py`). Of two that start
        it at once, the second waits for the first.

        Raises
        ------
        InputError
            If the federation runs already, its port is in use, or one of the programs does not start.
        """
        with artefact.locked(self.folder / "flwr" / "start.lock"):
            if self.running:
                raise InputError(f"the federation `{self.name}` runs already; stop it with `fedcollab federation stop`")
            self.stop()  # what is left where one of the two has died
            if processes.listening("127.0.0.1", self.port):
                raise InputError(f"port {self.port} is in use; change it in federation.toml and invitation.toml")
            try:
                self._start()
            except BaseException:
                self.stop()
                raise

    def _start(self) -> None:
        """Start both processes, where neither runs."""
        inner, folder = processes.free_port(), self.folder / "keys" if self.secure else None
        bind = "127.0.0.1" if self.host in LOCAL else "0.0.0.0"
        options = {"host": bind, "port": self.port, "inner": inner, "keys": folder and str(folder)}
        write_connection(self.folder / "flwr", inner, folder)
        for old in ("nodes.json", "link.db"):  # what an earlier SuperLink knew
            (self.folder / "flwr" / old).unlink(missing_ok=True)
        self._start_program(superlink_command(inner, folder), inner)
        self.register(self.admitted)  # before silos can come in: one that is not known yet would be refused
        self._start_program([sys.executable, "-m", GATE, json.dumps(options)], self.port)

    def _start_program(self, command: list[str], port: int) -> None:
        """Start one of the two, note it, and wait until it listens."""
        log = self.folder / "superlink.log"
        started = processes.start(command, log, self.env())
        artefact.write_bytes(self.folder / "processes.json", json.dumps([*self.handles, started]).encode())
        wait_until_listening(port, started, log)

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
            If the file is no public key, the name cannot be used, another key is admitted under it, or the key under
            another name; and if the key was expelled since the federation was started.
        """
        content = keys.read_public_key(key)
        keys.check_name(name)
        for other in self.admitted:
            if other != name and (self.folder / "silos" / f"{other}.pub").read_bytes() == content:
                raise InputError(f"this key is admitted already, as `{other}`")
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
        try:
            answers = self.flwr(*(["supernode", "register", key[name], CONNECTION, "--name", name] for name in new))
        except InputError as error:
            if KNOWN not in str(error):
                raise
            raise InputError(
                "the SuperLink lets no key in again that was expelled since it was started; the silo is admitted when "
                "the federation is started again (`fedcollab federation stop`, then `start`)"
            ) from None
        known = {**self.nodes, **{n: str(answer["node-id"]) for n, answer in zip(new, answers, strict=True)}}
        artefact.write_bytes(self.folder / "flwr" / "nodes.json", json.dumps(known, indent=1).encode())

    def status(self) -> dict[str, Any]:
        """Return whether the federation runs, and which silos are connected.

        Returns
        -------
        dict
            `name`, `address`, `secure`, `running`, `silos` (the state of each silo by name), and `warnings`: what has
            died, and certificates that end soon.
        """
        running, warnings = self.running, self.warnings()
        if died := self.died:
            again = f"`fedcollab federation start {self.folder}` starts it again"
            warnings.insert(0, f"the {' and the '.join(died)} has ended by itself; {again}")
        answer = {"name": self.name, "address": f"{self.host}:{self.port}", "secure": self.secure}
        answer |= {"running": running, "silos": dict.fromkeys(self.admitted, "unknown"), "warnings": warnings}
        if not running:
            return answer
        names = {node: name for name, node in self.nodes.items()}
        (listed,) = self.flwr(["supernode", "list", CONNECTION])
        shown = {
            names.get(node["node-id"], node["node-id"]): node["status"]
            for node in listed["nodes"]
            if node["status"] != EXPELLED
        }
        return {**answer, "silos": dict.fromkeys(self.admitted, "not registered; start the federation again") | shown}

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
        try:
            return run_flwr(calls, self.env())
        except InputError as error:
            ended = [line for line in self.warnings() if " ended " in line]  # then Flower says "unavailable" at most
            raise InputError("; ".join([*ended, str(error)])) from None

    def _read(self, name: str) -> Any:
        """Return the content of one of the folder's JSON files, or None if it is missing or broken."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.folder / name).read_text())

"""A silo's process: Flower's SuperNode with the silo's own config, key and folder, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fedcollab.errors import InputError
from fedcollab.flower import keys, processes, warm
from fedcollab.flower.config import CONFIG, SiloConfig, read_toml

SOCKET_PATH = 100  # bytes of a socket's path that every system allows; beyond, messages start programs anew


@dataclass(frozen=True)
class Invitation:
    """What the coordinator sent: where it is, and how to know that it is the coordinator."""

    federation: str
    address: str
    certificate: str | None

    @classmethod
    def read(cls, path: Path) -> Invitation:
        """Read an invitation; one without a certificate must say that it is insecure."""
        content = read_toml(path, "invitation from the coordinator")
        certificate = content.get("certificate")
        if "address" not in content or (certificate is None and content.get("insecure") is not True):
            raise InputError(f"`{path}` is no invitation: expected `address` and `certificate`")
        return cls(str(content.get("name", "")), str(content["address"]), certificate)


def init(folder: Path, name: str, data: Path, label: str | None, invitation: Path | None) -> tuple[Path, Path | None]:
    """Write silo.toml and make the key pair; the config, and the public key for the coordinator where one is needed."""
    config = folder / "silo.toml"
    keys.check_name(name)
    if config.exists():
        raise InputError(f"`{config}` exists; edit it, or give another folder")
    secure = True
    if invitation is not None:
        secure = Invitation.read(invitation).certificate is not None
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"name = {_text(name)}", f"data = {_text(str(data.absolute()))}"]
    lines += [f"label = {_text(label)}"] * (label is not None)
    if invitation is not None:
        lines += [f"invitation = {_text(str(invitation.absolute()))}"]
    public = keys.make_silo_key(folder / f"{name}.key", name) if secure else None
    config.write_text("\n".join(lines) + "\n")
    return config, public


def command(path: Path) -> tuple[list[str], dict[str, str]]:
    """What to run for a silo's config, and in which environment."""
    config = SiloConfig.read(path)
    invitation = Invitation.read(config.invitation)
    home = config.state / "flwr"
    home.mkdir(parents=True, exist_ok=True)
    processes.program("flower-supernode")  # is there, or one clear line
    line = [sys.executable, "-m", "fedcollab.flower.supernode", "--superlink", invitation.address]
    line += ["--host", "127.0.0.1", "--port", str(processes.free_port())]
    line += ["--node-config", f"name={_text(config.name)}"]  # for others' apps; it stays at the node
    if invitation.certificate is None:
        line += ["--insecure"]
    else:
        if not config.key.is_file():
            raise InputError(f"`{config.key}` does not exist; make the silo's key with `fedcollab silo init`")
        digest = hashlib.sha256(invitation.certificate.encode()).hexdigest()[:16]
        certificate = home / f"coordinator-{digest}.crt"
        certificate.write_text(invitation.certificate)
        line += ["--root-certificates", str(certificate), "--auth-supernode-private-key", str(config.key)]
    return line, processes.environment(home, {CONFIG: str(path.absolute())})


def start(path: Path) -> NoReturn:
    """Become the SuperNode: no wrapper stays behind, signals go where they belong, and children end with it."""
    line, env = command(path)
    home = Path(env["FLWR_HOME"])
    address = str(home / "warm")
    script = warm.write_script(home / "bin", address)
    env["PATH"] = os.pathsep.join([str(script), env["PATH"]])
    if len(address.encode()) < SOCKET_PATH:
        subprocess.Popen([sys.executable, "-m", warm.__name__, address], env=env, stdin=subprocess.DEVNULL)
    os.execve(line[0], line, env)


def _text(value: str | None) -> str:
    """A TOML string."""
    return json.dumps(value, ensure_ascii=False)

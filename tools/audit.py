"""Audit what fedcollab depends on, as far as that works without a network.

    python tools/audit.py

Every package that fedcollab and its extras ask for, and those that they ask for in turn: it is pinned in
constraints.txt, installed in just that version, and every installed file still has the SHA-256 that its wheel listed.
Prints what is wrong, and returns 1 then. Known vulnerabilities are not looked up: that asks a service on the internet
(`pip-audit -r constraints.txt`, where one may).
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
UNPINNED = {"setuptools"}  # torch asks for it; a pin would hold for the builds of other packages too


def plain(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> dict[str, str]:
    """Return the versions of constraints.txt by name."""
    lines = (line.split("#")[0].split(";")[0].strip() for line in text.splitlines())
    return {plain(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def closure(name: str, extras: set[str]) -> dict[str, metadata.Distribution]:
    """Return the installed packages that one asks for with its extras, and so on; not itself."""
    found: dict[str, metadata.Distribution] = {}
    asked, known = [(plain(name), frozenset(extras))], set()
    while asked:
        one = asked.pop()
        if one in known:
            continue
        known.add(one)
        try:
            found[one[0]] = metadata.distribution(one[0])
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed here
        for text in found[one[0]].requires or ():
            need = Requirement(text)
            wanted = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*one[1], ""))
            if wanted:
                asked.append((plain(need.name), frozenset(need.extras)))
    del found[plain(name)]
    return found


def changed(package: metadata.Distribution) -> list[str]:
    """Return the files that are not what the wheel listed."""
    wrong = []
    for file in package.files or ():
        if file.hash is None or file.suffix == ".pyc":
            continue
        path = Path(str(file.locate()))
        if not path.is_file():
            wrong.append(f"{file} is missing")
            continue
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, file.hash.mode).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            wrong.append(f"{file} was changed")
    return wrong


def main() -> int:
    """Audit; print a line for each finding, and how much was looked at."""
    versions = pinned((ROOT / "constraints.txt").read_text())
    extras = set(metadata.metadata("fedcollab").get_all("Provides-Extra") or ())
    packages, wrong, files = closure("fedcollab", extras), [], 0
    for name, package in sorted(packages.items()):
        if name in UNPINNED:
            pass
        elif name not in versions:
            wrong.append(f"{name} {package.version} is not pinned in constraints.txt")
        elif versions[name] != package.version.split("+")[0]:  # torch for CPUs has a name of its own after it
            wrong.append(f"{name} {package.version} is installed, {versions[name]} is pinned")
        files += len(package.files or ())
        wrong += [f"{name}: {what}" for what in changed(package)]
    print("\n".join([*wrong, f"{len(packages)} packages, {files} files, {len(wrong)} finding(s)"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

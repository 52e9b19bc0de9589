"""Taking named files out of a tar file, whatever folder they are in there; nothing else is read or written."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedcollab.errors import InputError


def members(archive: Path, names: Sequence[str]) -> Iterator[tuple[bytes, str]]:
    """Yield the content and name of each file, in the order of `names`."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                content = tar.extractfile(member) if name in names else None
                if content is not None:
                    found[name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"`{archive}` cannot be unpacked: {(str(error) or 'damaged').splitlines()[0]}") from None
    for name in names:
        if name not in found:
            raise InputError(f"`{archive}` lacks {name}")
        yield found.pop(name), name

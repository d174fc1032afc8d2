"""Archives, honest and not, for tests."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator

MANIFEST = b'name = "p"\nversion = "1"\n[[job]]\nid = "a"\nkind = "demo"\ncommand = ["true"]\n'


def entry(name: str, content: bytes = b"", **changes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in changes.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=kind, linkname=target)


def tar(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def payload(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return gzip.compress(tar(entry("payload.toml", MANIFEST), *entries))


def pieces(data: bytes, size: int = 7919) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]

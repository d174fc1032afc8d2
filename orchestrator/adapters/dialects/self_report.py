"""What a job of ours printed about itself, read as the logs of others are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

from orchestrator.adapters.dialects.failure_lines import failure_line
from orchestrator.adapters.dialects.text_lines import LINE_LIMIT, text_lines
from orchestrator.application.ports.dialects import HEAD_BYTES, Artifact

_WORDS = (b"fail", b"error", b"skip", b"pass", b"ok", b"total", b"test", b"check")


def read_self_report(output: Iterable[bytes]) -> str:
    """The line in which the output speaks of a failure; empty where none does.

    Args:
        output: All that the job printed, in pieces.
    """
    with NamedTemporaryFile() as file:
        file.writelines(_telling(output))
        size = file.tell()
        file.seek(0)
        artifact = Artifact("output.txt", Path(file.name), size, file.read(HEAD_BYTES))
        return failure_line(text_lines(artifact))


def _telling(output: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that may say something, each no longer than is read of one."""
    rest = b""
    for piece in output:
        text = rest + piece
        *lines, rest = text.split(b"\n") if _tells(text) else (text[text.rfind(b"\n") + 1 :],)
        yield from (line[:LINE_LIMIT] + b"\n" for line in lines if _tells(line))
        rest = rest[:LINE_LIMIT]
    if _tells(rest):
        yield rest


def _tells(text: bytes) -> bool:
    """Whether it has a word without which a line says nothing here, as most of them do."""
    text = text.lower()
    return any(word in text for word in _WORDS)

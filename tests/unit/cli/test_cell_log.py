"""Bytes that come in pieces become whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from orchestrator.cli.failure_logs import Gaps, LogSelection, WholeLines, chosen_logs
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import read
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("end", ["", "\n"])
def test_no_piece_cuts_a_letter_or_an_escape_sequence(size: int, end: str) -> None:
    text = f"één\n\n\x1b[31mrood\x1b[0m ✓{end}".encode()
    lines = WholeLines()
    pieces = [lines.add(text[at : at + size]) for at in range(0, len(text), size)]
    pieces.append(lines.rest())
    assert b"".join(pieces) == text.rstrip(b"\n") + b"\n"
    assert all(piece.endswith(b"\n") for piece in pieces if piece)
    assert text.decode().startswith("".join(piece.decode() for piece in pieces[:-1]))
    assert lines.rest() == b""


class CutArtifacts(Seatrial):
    """A client whose artifacts come byte by byte."""

    def __init__(self) -> None:
        """It has no connection."""

    @contextmanager
    def stream(self, _path: str, **_options: object) -> Iterator[httpx.Response]:
        yield httpx.Response(200, content=(bytes([byte]) for byte in "één\n✓".encode()))


def test_the_output_of_a_job_is_printed_in_whole_lines() -> None:
    output = {"name": "hull.txt", "size_bytes": 9, "digest": "d" * 64}
    cell = runs.cell("cpu", "done", jobs=[runs.passed("hull")], artifacts=[output])
    run = read(RunResponse, runs.run(cell))
    client = CutArtifacts()
    chosen = LogSelection(job="hull")
    pieces = chosen_logs(client, run, list(run.cells), chosen, Gaps())
    shown = [piece.decode() for piece in pieces]
    assert [text for text in shown if text] == ["===== cpu hull =====\n", "één\n", "✓\n"]

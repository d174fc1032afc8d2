"""Frames of blobs: compressed where that makes them smaller, and only wrapped where not."""

from __future__ import annotations

import os

import pytest

from orchestrator.domain.blobs import FRAME_BYTES, BlobIntake, opened

TEXT = b"the same line again and again\n" * 40_000
NOISE = os.urandom(FRAME_BYTES + 1000)


@pytest.mark.parametrize(
    ("data", "is_compressed"),
    [
        pytest.param(TEXT, [True] * 3, id="text"),
        pytest.param(NOISE, [False] * 2, id="an archive"),
        pytest.param(NOISE[:FRAME_BYTES] + TEXT[:FRAME_BYTES], [False, True], id="each by itself"),
        pytest.param(b"x", [False], id="a byte"),
    ],
)
def test_what_does_not_become_smaller_is_not_compressed(
    data: bytes, is_compressed: list[bool]
) -> None:
    intake = BlobIntake(None)
    frames = list(intake.frames([data]))
    pieces = [data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]
    both = list(zip(frames, pieces, strict=True))
    # A frame that is only wrapped holds the bytes as they are.
    assert [piece[len(piece) // 2 :][:1000] not in frame for frame, piece in both] == is_compressed
    assert all(len(frame) < 1.001 * len(piece) + 20 for frame, piece in both)
    assert b"".join(opened(intake.digest(None), frames)) == data

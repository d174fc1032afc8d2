"""Screenshots for the manual: as few bytes as show everything."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

MOST_COLOURS = 256
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _PALETTE = 2, 3


def keep_picture(page: Page, path: Path) -> None:
    """Write what the window shows, in at most 256 colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(with_palette(read_rgb(page.screenshot(animations="disabled"))))


def read_rgb(png: bytes) -> np.ndarray:
    """The points of a picture as Chromium writes it: eight bits, no interlacing."""
    width = height = channels = 0
    packed = b""
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8
            assert not interlaced
            channels = 3 if colour == _RGB else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, -1)
    return _unfiltered(rows, channels).reshape(height, width, channels)[:, :, :3]


def _unfiltered(rows: np.ndarray, channels: int) -> np.ndarray:
    out = np.zeros((rows.shape[0] + 1, rows.shape[1] - 1), np.uint8)
    for number, row in enumerate(rows):
        above, here = out[number], row[1:].copy()
        match row[0]:
            case 1:
                here = np.add.accumulate(here.reshape(-1, channels), dtype=np.uint8).reshape(-1)
            case 2:
                here = here + above
            case 3 | 4:
                _by_neighbours(here, above, channels, is_paeth=row[0] == 4)
        out[number + 1] = here
    return out[1:]


def _by_neighbours(here: np.ndarray, above: np.ndarray, channels: int, *, is_paeth: bool) -> None:
    """Filters whose every point waits for the one before."""
    for channel in range(channels):
        line, over = here[channel::channels].tolist(), above[channel::channels].tolist()
        here[channel::channels] = (_paeth if is_paeth else _average)(line, over)


def _average(line: list[int], over: list[int]) -> list[int]:
    left = 0
    for at, up in enumerate(over):
        left = line[at] = (line[at] + (left + up) // 2) & 0xFF
    return line


def _paeth(line: list[int], over: list[int]) -> list[int]:
    left = corner = 0
    for at, up in enumerate(over):
        by_left, by_up = abs(up - corner), abs(left - corner)
        by_corner = abs(left + up - corner - corner)
        if by_left <= by_up and by_left <= by_corner:
            guess = left
        else:
            guess = up if by_up <= by_corner else corner
        left = line[at] = (line[at] + guess) & 0xFF
        corner = up
    return line


def with_palette(points: np.ndarray) -> bytes:
    """As a PNG of the most frequent colours, and the nearest of them for every other."""
    height, width, _ = points.shape
    codes = points.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    colours, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:MOST_COLOURS]
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.int32)
    nearest = np.array([np.abs(rgb[kept] - one).sum(axis=1).argmin() for one in rgb])
    rows = nearest[places.reshape(height, width)].astype(np.uint8)
    raw = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0)),
            _chunk(b"PLTE", rgb[kept].astype(np.uint8).tobytes()),
            _chunk(b"IDAT", zlib.compress(raw, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

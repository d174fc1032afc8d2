"""What is known of accelerators, against which documents are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain.catalogue import architecture


@dataclass(frozen=True, slots=True)
class Board:
    """One accelerator."""

    name: str
    capability: str
    memory_gb: int
    """As it is sold."""
    instances: tuple[str, ...]
    """Beginnings of the instance types that have it."""

    @property
    def architecture(self) -> str:
        """Of its compute capability."""
        return architecture(self.capability)


BOARDS = (
    Board("A10G", "8.6", 24, ("g5.",)),
    Board("L4", "8.9", 24, ("g2-standard-", "g6.", "gr6.")),
    Board("L40S", "8.9", 48, ("g6e.",)),
    Board("T4", "7.5", 16, ("g4dn.",)),
    Board("V100", "7.0", 16, ("p3.",)),
    Board("A100", "8.0", 40, ("p4d.", "a2-highgpu-")),
    Board("H100", "9.0", 80, ("p5.", "a3-highgpu-")),
    Board("H200", "9.0", 141, ("p5e.", "p5en.", "a3-ultragpu-")),
)
ARCHITECTURES = ("Volta", "Turing", "Ampere", "Ada Lovelace", "Ada", "Hopper", "Blackwell")
FP8_SINCE = 8.9
"""Compute capability from which tensor cores know FP8."""

_NAMES = re.compile(rf"(?<![\w-])({'|'.join(b.name for b in BOARDS)})(?![\w-])")
_INSTANCE = re.compile(
    r"(?<![\w.])((?:g|p|gr)\d\w{0,3}\.\d{0,3}\w{1,10}|[a-z]\d-\w{1,20}-\d{1,4}g?)(?![\w.])"
)
_BY_NAME = {board.name: board for board in BOARDS}


def boards_in(text: str) -> tuple[Board, ...]:
    """The accelerators that a text names, each once."""
    return tuple(dict.fromkeys(_BY_NAME[name] for name in _NAMES.findall(text)))


def instances_in(text: str) -> Iterator[tuple[str, Board]]:
    """The instance types of a text whose accelerator is known."""
    for name in _INSTANCE.findall(text):
        for board in BOARDS:
            if name.startswith(board.instances):
                yield name, board


def same_architecture(a: str, b: str) -> bool:
    """``Ada`` and ``Ada Lovelace`` are one."""
    return a.lower().split()[0] == b.lower().split()[0]

"""A cell with more behind it than its row has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.table import Plain


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of what is folded away."""

    name: str
    value: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    """A sentence, with the figures that it rests on folded away behind it."""

    kind: ClassVar[str] = "folded"
    value: str
    facts: Sequence[Fact] = ()

    def plain(self) -> Plain:
        """The sentence."""
        return self.value

    def text(self) -> str:
        """The sentence in one line."""
        return visible(cut(self.value)).replace("\n", " ")

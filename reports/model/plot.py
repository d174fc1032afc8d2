"""A figure of a report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plot:
    """Drawn from a model; a document links it or carries it."""

    name: str
    """Names its file: lower-case letters, digits and dashes."""
    title: str
    told: str
    """What it shows, in a sentence, for those who do not see it."""
    svg: str

    @property
    def path(self) -> str:
        """Beside the document."""
        return f"plots/{self.name}.svg"

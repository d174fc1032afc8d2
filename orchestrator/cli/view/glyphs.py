"""The signs and colours of outcomes; every sign is one cell wide and tells without its colour."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.domain.outcome import Counts


@dataclass(frozen=True, slots=True)
class Sign:
    """How an outcome or a state looks."""

    glyph: str
    style: str


OUTCOMES = {
    "passed": Sign("✓", "green"),
    "failed": Sign("✗", "bold red"),
    "timed_out": Sign("✗", "bold red"),
    "errored": Sign("!", "bold magenta"),
    "cancelled": Sign("⊘", "yellow"),
    "not_available": Sign("–", "yellow"),
    "not_run": Sign("–", "dim"),
    "skipped": Sign("⊘", "yellow"),
}
WAITING = Sign("○", "dim")
ACTIVE = Sign("●", "cyan")
UNKNOWN = Sign("?", "bold magenta")

TESTS = (
    ("passed", Sign("✓", "green")),
    ("failed", Sign("✗", "bold red")),
    ("error", Sign("!", "bold magenta")),
    ("skipped", Sign("⊘", "yellow")),
    ("xfailed", Sign("x", "dim")),
    ("xpassed", Sign("X", "yellow")),
    ("missing", Sign("?", "magenta")),
    ("not_run", Sign("–", "magenta")),
)
"""The eight figures of `Counts`, in the order they are told."""

_QUIET = frozenset({"not_available", "not_run"})


def sign_of(outcome: str | None, *, active: bool) -> Sign:
    """The sign of an outcome, or of something that has none yet."""
    if outcome is None:
        return ACTIVE if active else WAITING
    return OUTCOMES.get(outcome, UNKNOWN)


def word(name: str) -> str:
    """An outcome or a state as people write it: ``timed out``."""
    return one_line(name).replace("_", " ")


def tally(counts: Counts, *, over: bool = True) -> Text:
    """``48 ✓  2 ✗``: figures that are not 0.

    What was collected and not reported is `missing` only when its job is over; before, it is
    still to come.
    """
    figures = counts.as_dict()
    if not over:
        figures["missing"] = 0
    parts = [
        Text(f"{figures[name]} {sign.glyph}", style=sign.style)
        for name, sign in TESTS
        if figures[name]
    ]
    return Text("  ").join(parts)


def is_quiet(outcome: str | None) -> bool:
    """Whether an outcome is nobody's failure."""
    return outcome == "passed" or outcome in _QUIET

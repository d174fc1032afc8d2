"""The generated section of docs/explanation/statistics.md, and whether it is up to date.

The section has a sample, the results of a few releases and series of every kind. A change of the
statistics changes the sample, and the tables must be computed again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from benchmarks.gate_power.noise import NIGHTS, TURNS
from benchmarks.gate_power.releases import SLOWER, Scenario, simulate
from benchmarks.gate_power.series import observe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "statistics.md"
_BEGIN, _END = "<!-- gate-power ", "<!-- /gate-power -->"
_FOUR_DIGITS = 4


def sample() -> str:
    """Return a digest of the current sample, which is computed in seconds."""
    seen: list[object] = []
    for noise in TURNS:
        tally = simulate(Scenario(noise=noise, slowdown=SLOWER, slow=1), releases=1)
        figures = (tally.p, sum(tally.detectable))
        seen.append([noise, tally.found, sum(tally.pairs), *map(_rounded, figures)])
    for noise in NIGHTS:
        trend = observe(noise, series=3)
        seen.append([noise, trend.alarms, trend.noisy, trend.found, _rounded(trend.p)])
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


def written() -> tuple[str, str]:
    """Return the sample of the page, and the digest of its tables when they were computed."""
    head = _section(PAGE.read_text("utf-8")).partition("\n")[0]
    _, of_sample, of_text = head.removesuffix(" -->").removeprefix("<!-- ").split()
    return of_sample, of_text


def tables() -> str:
    """Return the digest of the page's present tables."""
    return _digest(_section(PAGE.read_text("utf-8")).partition("\n")[2].strip())


def write(text: str) -> None:
    """Write new tables to the page."""
    page = PAGE.read_text("utf-8")
    head = f"{_BEGIN}{sample()} {_digest(text.strip())} -->"
    PAGE.write_text(page.replace(_section(page), f"{head}\n\n{text.strip()}\n\n"), "utf-8")


def _section(page: str) -> str:
    start = page.index(_BEGIN)
    return page[start : page.index(_END, start)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded(value: float) -> str:
    return f"{value:.{_FOUR_DIGITS}g}"

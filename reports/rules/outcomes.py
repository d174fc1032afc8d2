"""Rules about outcomes: a run is as good as its worst cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.rules.blocks import Said, differs

SEVERITY = ("passed", "not_available", "cancelled", "errored", "timed_out", "failed")
"""From the best to the worst."""


def run_outcome_rule(code: str, cells: Sequence[tuple[str, bool]]) -> Iterator[Said]:
    """The run's outcome is its worst cell's.

    Args:
        code: The run's outcome; a run that is not over has none to be checked.
        cells: Each cell's, and whether the cell was optional: then it may be not available.
    """
    if code not in SEVERITY:
        return
    counted = [said for said, optional in cells if not (optional and said == "not_available")]
    codes = counted or [said for said, _ in cells]
    if any(said not in SEVERITY for said in codes):
        yield "error", "outcome", f"the run is {code}, and a cell is not over"
    elif codes:
        yield from differs("outcome", "the run's outcome", code, max(codes, key=SEVERITY.index))

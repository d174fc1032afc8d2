"""A confidence interval as a small picture: where it lies, and where nothing and the budget are."""

from __future__ import annotations

from orchestrator.dashboard.charts import Picture, Shape

_WIDTH, _HEIGHT, _MIDDLE = 120, 18, 9


def interval(low: float, value: float, high: float, limit: float | None) -> Picture:
    """A line from low to high, a point for the value; zero and the limit as strokes.

    Args:
        low: Of the interval.
        value: The estimate.
        high: Of the interval.
        limit: The most that is allowed, where something is.
    """
    known = [low, value, high, 0.0, *([limit] if limit is not None else [])]
    left, right = min(known), max(known)

    def x(at: float) -> str:
        share = (at - left) / (right - left) if right > left else 0.5
        return f"{4 + (_WIDTH - 8) * share:.1f}"

    tone = "good" if limit is None or high <= limit else "bad" if low > limit else "warn"
    strokes = [
        _stroke(x(0.0), "axis"),
        *([_stroke(x(limit), "limit")] if limit is not None else []),
    ]
    bar = Shape(
        "rect",
        tone,
        (
            ("x", x(low)),
            ("y", str(_MIDDLE - 2)),
            ("width", f"{max(float(x(high)) - float(x(low)), 1.0):.1f}"),
            ("height", "4"),
        ),
    )
    point = Shape("circle", "point", (("cx", x(value)), ("cy", str(_MIDDLE)), ("r", "3")))
    return Picture(_WIDTH, _HEIGHT, (*strokes, bar, point), "interval")


def _stroke(x: str, name: str) -> Shape:
    ends = (("x1", x), ("y1", "1"), ("x2", x), ("y2", str(_HEIGHT - 1)))
    return Shape("line", name, ends)

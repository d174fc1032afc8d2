"""Statistics and the similarity of texts; their libraries are imported at their first use."""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Sequence

from orchestrator.application.ports.statistics import Detector, Trend, Watched
from orchestrator.domain.benchmark_series import ChangePoint
from orchestrator.domain.gate.performance import PairedComparison, Statistics
from orchestrator.extras import require


class LazyStatistics:
    """`PairedStatistics`, imported at its first use."""

    def compare(
        self,
        subject: Sequence[float],
        baseline: Sequence[float],
        *,
        direction: str,
        margin: float,
        alpha: float,
    ) -> PairedComparison:
        """Test whether the subject is slower than the baseline by more than a margin.

        The samples are pairs, in the order in which they were measured.
        """
        return _statistics().compare(
            subject, baseline, direction=direction, margin=margin, alpha=alpha
        )

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        """Adjust p-values for multiple tests (Benjamini-Hochberg)."""
        return _statistics().adjusted(p) if p else ()


class LazyDetector:
    """`StepDetector`, imported at its first use."""

    def detect(self, values: Sequence[float], environments: Sequence[str] = ()) -> Trend:
        """Return the trend of a series in order of time."""
        return _detector().detect(values, environments)

    def changes(self, many: Sequence[Watched]) -> Sequence[Sequence[ChangePoint]]:
        """Return the change points of many series, as `detect` does for each."""
        return _detector().changes(many) if many else ()


_WHAT = "the comparison of benchmarks"


def _statistics() -> Statistics:
    """Import the statistics of pairs. Raises MissingExtraError."""
    require("statistics", _WHAT)
    from orchestrator.adapters.statistics import PairedStatistics

    return PairedStatistics()


def _detector() -> Detector:
    """Import the detector of steps. Raises MissingExtraError."""
    require("statistics", _WHAT)
    from orchestrator.adapters.statistics import StepDetector

    return StepDetector()


class FuzzySimilarity:
    """Similarity by edit distance, by rapidfuzz."""

    def names(self, one: str, other: str) -> float:
        """Return the similarity from 0 to 1: the share of common text in the same order."""
        from rapidfuzz import fuzz

        return fuzz.ratio(one, other) / 100

    def messages(self, one: str, other: str) -> float:
        """Return the similarity from 0 to 100, by rapidfuzz's token set ratio."""
        from rapidfuzz import fuzz

        return fuzz.token_set_ratio(one, other)

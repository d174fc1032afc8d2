"""Statistics with scipy."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.gate.performance import Comparison


class PairedStatistics:
    """Implements the Statistics of `orchestrator.domain.gate.performance`."""

    def compare(
        self,
        subject: Sequence[float],
        baseline: Sequence[float],
        *,
        direction: str,
        margin: float,
        alpha: float,
    ) -> Comparison:
        """See the protocol."""
        raise NotImplementedError

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        """See the protocol."""
        raise NotImplementedError

"""Tokens per second are batch times sequence over time, where a job reports all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reports.model.parts import MetricGroup, MetricRow
from reports.model.values import Absent
from reports.rules.parts import Said

TOLERANCE = 0.01
_TOKENS = frozenset({"tok/s", "token/s", "tokens/s"})
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BATCH = ("batch", "batch_size")
_SEQUENCE = ("seq", "seq_len", "sequence", "sequence_length")


def throughput_rule(groups: Sequence[MetricGroup]) -> Iterator[Said]:
    """A throughput that no time of the same job and parameters explains is a contradiction."""
    for group in groups:
        if group.unit.lower() not in _TOKENS:
            continue
        for row in group.rows:
            found = list(_expected(row, group.job, groups))
            if found and not any(_agrees(row, expected) for expected in found):
                params = ", ".join(f"{k}={v}" for k, v in row.params)
                message = (
                    f"{group.job}: {group.name} ({params}) is {row.median} {group.unit}, "
                    f"but batch x sequence / time is {found[0]:.6g}"
                )
                yield "warning", "throughput", message


def _agrees(row: MetricRow, expected: float) -> bool:
    return not isinstance(row.median, Absent) and (
        abs(row.median - expected) <= TOLERANCE * abs(expected)
    )


def _expected(row: MetricRow, job: str, groups: Sequence[MetricGroup]) -> Iterator[float]:
    tokens = _tokens(dict(row.params))
    for group in groups:
        scale = _SECONDS.get(group.unit)
        if scale is None or tokens is None or group.job != job:
            continue
        for other in group.rows:
            if other.params == row.params and not isinstance(other.median, Absent) and other.median:
                yield tokens / (other.median * scale)


def _tokens(params: Mapping[str, str]) -> float | None:
    batch = _first(params, _BATCH)
    sequence = _first(params, _SEQUENCE)
    return batch * sequence if batch is not None and sequence is not None else None


def _first(params: Mapping[str, str], names: Sequence[str]) -> float | None:
    said = next((params[name] for name in names if name in params), "")
    return float(said) if said.isdigit() else None

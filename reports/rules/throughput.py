"""Tokens per second are batch times sequence over time, where a job reports all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reports.model.metrics import MetricColumn, MetricFigure, MetricLine, MetricTable
from reports.model.values import Absent
from reports.rules.blocks import Said

TOLERANCE = 0.01
_TOKENS = frozenset({"tok/s", "token/s", "tokens/s"})
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BATCH = ("batch", "batch_size")
_SEQUENCE = ("seq", "seq_len", "sequence", "sequence_length")


def throughput_rule(tables: Sequence[MetricTable]) -> Iterator[Said]:
    """A throughput that no time of the same job and parameters explains is a contradiction.

    Where a table does not show every figure, the time that explains it may be among the others.
    """
    for table in tables:
        for line in table.rows if not table.hidden else ():
            for column, figure in zip(table.columns, line.cells, strict=False):
                if figure is not None and column.unit.lower() in _TOKENS:
                    yield from _judge(table, line, column, figure)


def _judge(
    table: MetricTable, line: MetricLine, column: MetricColumn, figure: MetricFigure
) -> Iterator[Said]:
    found = list(_expected(line, table))
    if found and not any(_agrees(figure, expected) for expected in found):
        params = ", ".join(f"{k}={v}" for k, v in line.params)
        message = (
            f"{table.job}: {figure.name} ({params}) is {figure.median} {column.unit}, "
            f"but batch x sequence / time is {found[0]:.6g}"
        )
        yield "warning", "throughput", message


def _agrees(figure: MetricFigure, expected: float) -> bool:
    return not isinstance(figure.median, Absent) and (
        abs(figure.median - expected) <= TOLERANCE * abs(expected)
    )


def _expected(line: MetricLine, table: MetricTable) -> Iterator[float]:
    tokens = _tokens(dict(line.params))
    for other in table.rows:
        if tokens is None or other.params != line.params:
            continue
        for column, figure in zip(table.columns, other.cells, strict=False):
            scale = _SECONDS.get(column.unit)
            if scale is None or figure is None or isinstance(figure.median, Absent):
                continue
            if figure.median:
                yield tokens / (figure.median * scale)


def _tokens(params: Mapping[str, str]) -> float | None:
    batch = _first(params, _BATCH)
    sequence = _first(params, _SEQUENCE)
    return batch * sequence if batch is not None and sequence is not None else None


def _first(params: Mapping[str, str], names: Sequence[str]) -> float | None:
    said = next((params[name] for name in names if name in params), "")
    return float(said) if said.isdigit() else None

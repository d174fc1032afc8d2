"""Where an ingested cell's evidence is from, and how far it can be believed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.cli.responses import Ingested, Source
from orchestrator.cli.safe_text import one_line
from orchestrator.domain.units import plural

_REMARKS = 1
_INCONSISTENT = "bold red"


def ingested_block(told: Ingested) -> Iterator[RenderableType]:
    """Two lines about the whole, then a row a file with its first remarks."""
    when = f"of {told.dated_at:%Y-%m-%d}" if told.is_dated and told.dated_at else "not dated"
    head = f"  ingested, {one_line(told.provenance)}, {when}; nothing is attested"
    yield Text(head, style="dim")
    if told.repeated:
        said = f"  {plural(told.repeated, 'test')} in more than one file"
        if told.disagreements:
            said += f", {len(told.disagreements)} told differently: the worst counts"
        yield Text(said, style="yellow" if told.disagreements else "dim")
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for source in told.sources:
        table.add_row(f"  {one_line(source.name)}", _state(source), _said(source))
    yield table


def _state(source: Source) -> Text:
    if source.state == "inconsistent":
        return Text("INCONSISTENT", style=_INCONSISTENT)
    return Text(one_line(source.state), style="dim")


def _said(source: Source) -> Text:
    parts = [one_line(source.dialect)] if source.dialect else []
    if source.named is not None:
        parts.append(plural(source.named, "test"))
    parts += [one_line(remark) for remark in source.remarks[:_REMARKS]]
    more = len(source.remarks) - _REMARKS
    parts += [f"and {plural(more, 'more remark')}"] if more > 0 else []
    return Text("; ".join(parts))

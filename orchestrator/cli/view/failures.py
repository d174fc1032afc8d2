"""Failures of a run, one line per signature, with known issues and root causes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.glyphs import style_of, word
from orchestrator.domain.failure_signature import FailureGroup
from orchestrator.domain.known_issue import IssueState, IssueUse
from orchestrator.domain.quarantine import Quarantined, QuarantineState
from orchestrator.domain.root_cause import DiagnosedTest
from orchestrator.domain.run_record import RunResponse
from orchestrator.domain.units import plural


def blamed(run: RunResponse) -> Group | None:
    """Return the root causes of retested tests; None without any."""
    if not run.diagnosed:
        return None
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for one in run.diagnosed[:SHOWN]:
        table.add_row(_answer(one), _test(one, many=len(run.cells) > 1))
    parts: list[Text | Table] = [Text("\nroot cause", style="bold"), table]
    hidden = len(run.diagnosed) - SHOWN
    if hidden > 0:
        parts.append(Text(f"  and {plural(hidden, 'more test')}; --json has them all", "dim"))
    return Group(*parts)


def _answer(one: DiagnosedTest) -> Text:
    return Text(f"  {word(one.answer)}", style=style_of(one.answer))


def _test(one: DiagnosedTest, *, many: bool) -> Text:
    line = Text(one_line(f"{one.job}::{one.nodeid}" if one.nodeid else one.job))
    if many:
        line.append(f"  {one_line(one.cell)}", style="dim")
    line.append(f"\n{one_line(one.tried)}")
    if one.sentence:
        line.append(f"\n{one_line(one.sentence)}", style="dim")
    return line


SHOWN = 20
"""Maximum signatures that are shown."""


_ONLY_AT_THE_END = (IssueState.STALE, IssueState.UNTRIED, IssueState.UNMATCHED)
"""States that are shown only after all tests have run."""


def failures(run: RunResponse) -> Group | None:
    """Return failure groups, and known issues that need attention; None without either."""
    told = (use for use in run.known_issues if run.is_finished or use.state not in _ONLY_AT_THE_END)
    notes = [text for use in told if (text := _note(use)) is not None]
    notes += [_quarantined_text(one) for one in run.quarantined]
    if not run.failure_groups and not notes:
        return None
    parts: list[Text | Table] = []
    if run.failure_groups:
        parts += [Text("\nfailures by signature", style="bold"), _table(run)]
    hidden = len(run.failure_groups) - SHOWN
    if hidden > 0:
        more = f"  and {plural(hidden, 'more signature')}; --json has them all"
        parts.append(Text(more, style="dim"))
    return Group(*parts, *notes)


def _table(run: RunResponse) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold", ratio=1)
    for group in run.failure_groups[:SHOWN]:
        table.add_row(f"  {group.count}", _line(group, many=len(run.cells) > 1))
    return table


def _line(group: FailureGroup, *, many: bool) -> Text:
    line = Text(one_line(str(group.signature)))
    for part in _beside(group, many=many):
        line.append("  ").append_text(part)
    return line


def _beside(group: FailureGroup, *, many: bool) -> Iterator[Text]:
    if many and group.cells:
        yield Text(one_line(", ".join(group.cells)), style="dim")
    if group.excuses:
        yield Text(one_line(group.excuses), style="cyan")
    yield Text(one_line(group.signature.id), style="dim")


def _quarantined_text(one: Quarantined) -> Text:
    """Describe a failing test in quarantine."""
    quarantine, until = one.quarantine, f"{one.quarantine.expires:%Y-%m-%d}"
    said = f"is in quarantine {quarantine.id} until {until}"
    if one.state is QuarantineState.EXPIRED:
        said = f"was in quarantine {quarantine.id}, which expired {until}: it counts again"
    line = f"  {one.job}: {one.nodeid} on {one.cell} {said} ({quarantine.owner})"
    return Text(one_line(line), style="yellow")


def _note(use: IssueUse) -> Text | None:
    """Describe the next step for a known issue; None without one."""
    who = f"{use.issue.id} ({use.issue.title})"
    if use.state is IssueState.STALE:
        said = "is stale: a test of it ran and nothing matched; it may be fixed"
    elif use.state is IssueState.UNTRIED:
        said = "says nothing of this run: no test that failed so before ran in its job"
    elif use.state is IssueState.UNMATCHED:
        said = "has matched no failure so far"
    elif use.state is IssueState.EXPIRED and use.count:
        since = f" {plural(use.expired_days, 'day')} ago" if use.expired_days else ""
        said = f"expired{since}: it explains {plural(use.count, 'failure')} no more"
    elif use.state is IssueState.ENDED and use.count:
        said = f"was ended: it explains {plural(use.count, 'failure')} no more"
    elif use.state is IssueState.EXCEEDED:
        said = f"allows {plural(use.issue.max_failures or 0, 'failure')}, and {use.count} fit"
    else:
        return None
    return Text(one_line(f"  {who} {said}"), style="yellow")

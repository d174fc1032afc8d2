"""What the page of a test shows of its story."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from orchestrator.application.ports.grids import CellGo
from orchestrator.application.show_test import CellStory, TestStory
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import sparkline, strip
from orchestrator.dashboard.labels import age
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import (
    Badge,
    Cell,
    Column,
    Drawn,
    Moment,
    Row,
    Several,
    Span,
    Table,
    Tally,
    Text,
)
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.quarantine import is_flaky
from orchestrator.domain.signature import BAD
from orchestrator.domain.units import duration
from orchestrator.domain.vocabulary import term

_WIDTH = 120
_RUN_SHOWN = 10
"""Letters of a run's id; all of it is in the title."""
_NOTHING = Text("–")


def told_of(asked: Asked, story: TestStory) -> dict[str, str]:
    """The most important in words: how it stands, since when, how sure of itself it is."""
    judged = [one for one in story.cells if one.now is not None]
    failing = [one for one in judged if one.now is not None and one.now.outcome in BAD]
    told = {"now": "no result yet", "tone": "warn", "since": "", "flaky": _flaky(story)}
    if failing:
        told |= {"now": f"fails on {len(failing)} of {len(judged)}", "tone": "bad"}
        breaks = [one.broken for one in failing if one.broken is not None]
        first = min((one.first_bad for one in breaks), key=lambda go: go.at)
        told["since"] = f"since {first.version}, {age(first.at, asked.now)} ago"
    elif judged:
        passing = sum(1 for one in judged if _word(one) == "passed")
        told |= {"now": f"passes on {passing} of {len(judged)}"}
        told["tone"] = "good" if passing == len(judged) else "warn"
        if story.failure is not None:
            failed = story.failure
            told["since"] = f"last failed {age(failed.at, asked.now)} ago, on {failed.cell}"
    return told


def _word(one: CellStory) -> str:
    return one.now.outcome.word if one.now is not None else ""


def _flaky(story: TestStory) -> str:
    it = story.flaky
    if not it.judged:
        return "nothing to judge yet"
    if not it.failures and not it.passed_on_retry:
        return f"no short failure in {it.judged:,} results"
    parts = [
        f"{it.passed_on_retry:,} passed on retry" if it.passed_on_retry else "",
        f"{it.split:,} times both with one version" if it.split else "",
        f"{it.flips:,} flips in {it.chances:,}" if it.flips else "",
    ]
    told = ", ".join(part for part in parts if part) or f"{it.failures:,} short failures"
    verdict = "flaky" if is_flaky(it) else "not proven flaky"
    return f"{verdict}: {told}"


def platforms_table(asked: Asked, story: TestStory) -> Table:
    """Every platform beside the others: the newest result, and what came before it."""
    return Table(
        id="platforms",
        caption="On each platform",
        columns=(
            Column("platform", "Platform"),
            Column("now", "Newest"),
            Column("version", "Version"),
            Column("results", "Results, the newest to the right"),
            Column("passed", "Passed"),
            Column("took_s", "Takes", is_number=True),
            Column("trend_s", "Over time"),
            Column("broken", "Regression range"),
        ),
        rows=[
            Row(
                tuple(_platform(asked, story, one)),
                tone="bad" if one.now is not None and one.now.outcome in BAD else "",
            )
            for one in story.cells
        ],
        empty="It was collected, and no result has come yet.",
        is_caption_hidden=True,
    )


def _platform(asked: Asked, story: TestStory, one: CellStory) -> Iterator[Cell]:
    now = one.now
    name = f"{urls.test_url(story.test.id)}?{_query(cell=one.cell)}#history"
    yield Text(one.cell, name)
    yield Badge(now.outcome.word, _cell_url(now)) if now is not None else Badge("")
    note = f"{age(now.at, asked.now)} ago" if now is not None else ""
    yield Text(now.version, note=note) if now is not None else _NOTHING
    yield _strip(one)
    yield Tally(one.counts)
    took = [go.duration_s if go.outcome in _TIMED else None for go in reversed(one.goes)]
    real = [value for value in took if value is not None]
    yield Span(median(real) if real else None)
    yield _trend(one.cell, took, real)
    yield _turn(one)


_TIMED = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED, TestOutcome.XFAILED})
"""What fails takes as long as it takes to fail."""


def _query(**asked: str) -> str:
    return urls.with_query("", **asked).removeprefix("?")


def _cell_url(go: CellGo) -> str:
    return f"{urls.cell_url(go.run, go.cell)}#test-{go.test}"


def _strip(one: CellStory) -> Drawn:
    goes = list(reversed(one.goes))
    words = [go.outcome.word for go in goes]
    counted = {word: words.count(word) for word in dict.fromkeys(words)}
    told = ", ".join(f"{many} {term(word).word}" for word, many in counted.items())
    tones = [term(word).tone for word in words]
    bad = [1.0 if go.outcome in BAD else 0.0 for go in goes]
    return Drawn(strip(tones), bad, f"{one.cell}, {len(goes)} results: {told}")


def _trend(cell: str, took: Sequence[float | None], real: Sequence[float]) -> Cell:
    if len(real) < 2:
        return _NOTHING
    label = f"{cell}: from {duration(min(real))} to {duration(max(real))}"
    picture = sparkline(took, low=0, high=max(real), width=_WIDTH, height=20)
    return Drawn(picture, list(took), label)


def _turn(one: CellStory) -> Cell:
    """The newest pair of versions between which it broke, to compare."""
    if one.broken is None:
        return _NOTHING
    good, bad = one.broken.last_good, one.broken.first_bad
    many = one.broken.failures
    note = "1 failure" if many == 1 else f"{many} failures in a row"
    if good is None:
        return Text(f"fails at least since {bad.version}", _cell_url(bad), note=note)
    link = urls.compare_url(good.run, bad.run)
    return Several((Text(f"{good.version} → {bad.version}", link, note=f"{note}; compare"),))


def history_table(story: TestStory, goes: Sequence[CellGo], *, more: str) -> Table:
    """Result by result."""
    nodeids = {one.id: one.nodeid for one in (story.test, *story.names)}
    return Table(
        id="history",
        caption="Results, the newest first",
        columns=(
            Column("at", "Launched"),
            Column("outcome", "Outcome"),
            Column("platform", "Platform"),
            Column("version", "Version"),
            Column("took_s", "Took", is_number=True),
            Column("failure", "Failure"),
            Column("run", "Run"),
        ),
        rows=[Row(tuple(_result(story, go, nodeids))) for go in goes],
        empty="There are no older results.",
        next=more,
        is_caption_hidden=True,
    )


def _result(story: TestStory, go: CellGo, nodeids: dict[int, str]) -> Iterator[Cell]:
    yield Moment(go.at)
    word = "running" if go.is_alive and go.outcome is TestOutcome.MISSING else go.outcome.word
    tries = ", ".join(one.word for one in go.earlier)
    yield Badge(word, _cell_url(go), note=f"after {tries}" if tries else "")
    yield Text(go.cell)
    yield Text(go.version)
    yield Span(go.duration_s if go.outcome is not TestOutcome.MISSING else None)
    known = story.signatures.get(go.signature)
    said_so = str(known) if known is not None else go.signature
    as_was = f"as {nodeids[go.test]}" if go.test != story.test.id else ""
    if go.signature:
        kind = known.exception if known is not None else ""
        href = urls.signature_url(go.signature)
        yield Text(said_so, href, note=as_was, short=kind or go.signature)
    else:
        yield Text("–", note=as_was)
    yield Text(go.run, urls.run_url(go.run), short=f"{go.run[:_RUN_SHOWN]}…")


def beside_table(story: TestStory) -> Table:
    """What people said of its failures."""
    issues = [
        Row(
            (
                Text(one.issue.id, urls.KNOWN_ISSUES),
                Badge("expired" if one.is_expired else "active"),
                Text(one.issue.title, one.issue.url if _is_web(one.issue.url) else ""),
                Text(one.issue.owner),
                Text(f"{one.issue.expires}"),
            )
        )
        for one in story.issues
    ]
    quarantines = [
        Row(
            (
                Text(one.id, urls.FLAKY),
                Badge("flaky", note=", ".join(one.platforms) or "every platform"),
                Text(one.reason),
                Text(one.owner),
                Text(f"{one.expires:%Y-%m-%d}"),
            )
        )
        for one in story.quarantines
    ]
    return Table(
        id="excuses",
        caption="Known issues and quarantines",
        columns=(
            Column("id", "Which"),
            Column("state", "State"),
            Column("title", "What"),
            Column("owner", "Owner"),
            Column("until", "Until"),
        ),
        rows=[*issues, *quarantines],
        empty="No known issue fits its failures, and it is in no quarantine.",
        is_caption_hidden=True,
    )


def _is_web(address: str) -> bool:
    return address.startswith(("https://", "http://"))


def names_table(story: TestStory) -> Table:
    """What it was called before."""
    return Table(
        id="names",
        caption="Older names",
        columns=(Column("name", "Name"), Column("job", "Job"), Column("id", "Number")),
        rows=[Row((Text(one.nodeid), Text(one.job), Text(str(one.id)))) for one in story.names],
        empty="It has had no other name that a person confirmed.",
        is_caption_hidden=True,
    )

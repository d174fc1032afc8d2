"""Evidence that was handed in: where it is from is said, and nothing is smoothed over."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orchestrator.domain.ingested import Source
from orchestrator.domain.outcome import Outcome
from reports.model.values import Absent
from reports.registry import model_of, render
from tests.unit.reports.builders import evidence_of
from tests.unit.reports.foreign_stories import (
    annotation,
    handed_in,
    hostile_words,
    ingested,
    l4,
    source,
    typed,
)
from tests.unit.reports.tables import rendered_rows, tables
from tests.unit.reports.test_golden import compare
from tests.unit.reports.test_hostile_names import OURS, Tags

SAID = (
    annotation("narrative", "All platforms pass.", title="In short"),
    annotation("note", "The router's capacity is *new*.", cell="gcp-l4"),
    annotation("fix", "- one\n- two", title="Router", files=("routing.py",), problem="`x` | y",
              before="a = 1\n    b = 2\n", after="a = 2\n", commit="abc123"),
    annotation("recommendation", "Use **this**.", title="Which one", cell="gcp-l4"),
)  # fmt: skip
KINDS = (("platform", "gcp-l4"), ("summary", None), ("backend", None))


@pytest.mark.parametrize(("kind", "cell"), KINDS)
def test_golden(kind, cell, templates, golden, update_golden):
    text = render(kind, handed_in(*SAID), cell=cell, format="md", templates=templates)
    compare(golden / f"{kind}-handed-in.md", text, update_golden)


def platform(templates, *, cell: str = "gcp-l4", **words) -> str:
    return render("platform", handed_in(**words), cell=cell, format="md", templates=templates)


def test_inconsistent_files_are_listed_however_many_there_are():
    every = [source(f"ok-{i}.txt") for i in range(100)]
    bad = [replace(source(f"bad-{i}.txt"), state="inconsistent") for i in range(70)]
    from orchestrator.domain.ingested import SourceState

    loud = [replace(one, state=SourceState.INCONSISTENT) for one in bad]
    cell, jobs = typed()
    made = (replace(cell, ingested=ingested(*every, *loud)), jobs)
    origin = model_of("platform", evidence_of(made, outcome=Outcome.PASSED)).origin
    assert len(origin.inconsistent) == 70
    assert (origin.files, origin.hidden) == (170, 100)


@pytest.mark.parametrize(
    ("stamp", "differs"),
    [
        ("KernelPyTorch 0.4.40", False),
        ("kernel_pytorch 0.4.40", False),
        ("KernelPyTorch v0.4.40", False),
        ("KernelPyTorch 0.4.4", True),
        ("torchbridge 0.4.40", True),
    ],
)
def test_which_stamp_is_of_another_version(stamp, differs):
    cell, jobs = typed()
    stamped: Source = source("x.txt", stamps=(stamp,))
    made = (replace(cell, ingested=ingested(stamped)), jobs)
    evidence = evidence_of(made, outcome=Outcome.PASSED, subject="KernelPyTorch")
    assert bool(model_of("platform", evidence).origin.stamps) is differs


def test_a_date_that_nobody_says_is_that_of_handing_in(templates):
    assert "**Date**: 2026-01-19  \n" in platform(templates)
    undated = platform(templates, cell="aws-a10g")
    assert "**Date**: 2026-02-03, the day of the upload: the files give no date" in undated


def test_what_no_file_says_is_absent_for_that_reason(templates):
    model = model_of("platform", handed_in(), cell="gcp-l4")
    assert model.hardware.python == Absent("not in the ingested files")
    assert model.hardware.devices[0].driver == Absent("not in the ingested files")
    assert "by the platform catalogue NVIDIA L4 (24 GB)" in platform(templates)
    assert "never probed" not in platform(templates)


def test_failures_are_gathered_by_signature(templates):
    (row,) = model_of("platform", handed_in(), cell="gcp-l4").failures.rows
    assert (row.count, len(row.tests), row.hidden, row.known_issues) == (6, 5, 1, ("KI-0001",))
    assert "ValueError at moe.router.route" in row.description
    assert model_of("platform", handed_in(signed=False), cell="gcp-l4").failures is None
    assert "`KI-0001`: capacity \\| of \\`routers\\`" in platform(templates)


def test_a_test_that_failed_on_two_platforms_is_one_test(templates):
    one = handed_in()
    cell = one.record.cell("gcp-l4")
    cells = (cell, replace(cell, id="gcp-l4-b"))
    both = replace(
        one,
        record=replace(one.record, cells=cells),
        tests={name.id: one.tests["gcp-l4"] for name in cells},
    )
    (row,) = model_of("summary", both).failures.rows
    assert (row.count, len(row.tests), row.hidden) == (12, 5, 1)
    assert len(row.cells) == 2


def test_a_speed_up_that_is_none_is_a_remark():
    from tests.unit.reports.builders import ratio

    cell, jobs = l4()
    slow = replace(ratio("bench"), samples=(0.12, 0.11, 0.16))
    records = tuple(replace(j, metrics=(slow,)) if j.id == "bench" else j for j in cell.jobs)
    made = evidence_of((replace(cell, jobs=records), jobs), outcome=Outcome.FAILED)
    assert "slower" in {finding.rule for finding in model_of("platform", made).remarks}


def test_a_annotation_about_one_cell_stands_in_that_cells_report_only():
    mine = model_of("platform", handed_in(*SAID), cell="gcp-l4")
    others = model_of("platform", handed_in(*SAID), cell="aws-a10g")
    assert [said.kind for said in mine.authored] == ["note", "recommendation"]
    assert others.authored == ()


@pytest.mark.parametrize(("kind", "cell"), KINDS)
def test_hostile_words_of_people_stay_words(kind, cell, templates):
    evidence = handed_in(*hostile_words())
    page = render(kind, evidence, cell=cell, format="html", templates=templates)
    tags = Tags()
    tags.feed(page)
    assert tags.seen <= OURS | {"ol", "h4", "svg"}
    assert not any("example.com" in link for link in tags.links)
    text = render(kind, evidence, cell=cell, format="md", templates=templates)
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]", text) is None
    text.encode("utf-8")
    for table in tables(unfenced(text)):
        assert {len(row) for row in table} == {len(table[0])}, table[0]
    assert len([line for line in unfenced(text).splitlines() if line.startswith("# ")]) == 1
    assert rendered_rows(text) == [len(row) for table in tables(unfenced(text)) for row in table]


def unfenced(text: str) -> str:
    """The document without its fenced blocks, each closed by a fence as long as its own."""
    lines, fence = [], ""
    for line in text.splitlines():
        ticks = re.match(r"`{3,}$", line)
        if ticks and not fence:
            fence = ticks[0]
        elif ticks and len(ticks[0]) >= len(fence):
            fence = ""
        elif not fence:
            lines.append(line)
    assert not fence, "a block was never closed"
    return "\n".join(lines)

"""The seeds 001 to 004 from committed evidence, read by the real dialects.

Byte for byte against our golden documents; heading by heading, row by row and number by number
against the seeds. What differs from a seed is listed in `docs/seeds/`, and must differ.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from orchestrator.domain.run_record import Evidence
from reports.registry import render
from tests.unit.reports import transcribed
from tests.unit.reports.seeds import Comparison, corrections, unused
from tests.unit.reports.test_golden import compare

ROOT = Path(__file__).resolve().parents[3]
SEEDS = {
    "001": ("summary", "platform", "aws-a10g"),
    "002": ("summary", "summary", None),
    "003": ("platform", "platform", "gcp-l4"),
    "004": ("backend", "backend", None),
}
"""Which evidence, which kind of report, which cell."""


@cache
def evidence(which: str, scratch: Path) -> Evidence:
    makers = {
        "summary": transcribed.summary_evidence,
        "platform": transcribed.platform_evidence,
        "backend": transcribed.backend_evidence,
    }
    folder = scratch / which
    folder.mkdir()
    return makers[which](folder)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("seeds")


def document(name: str, scratch: Path, templates: Path) -> str:
    which, kind, cell = SEEDS[name]
    made = evidence(which, scratch)
    return render(kind, made, cell=cell, format="md", templates=templates)


@pytest.mark.parametrize("name", SEEDS)
def test_the_golden_document(name, scratch, templates, golden, update_golden):
    text = document(name, scratch, templates)
    compare(golden / f"seed-{name}.md", text, update_golden)


@pytest.mark.parametrize("name", SEEDS)
def test_everything_of_the_seed_is_there_but_for_the_listed_corrections(name, golden):
    seed = (golden.parent / "seeds" / f"{name}.md").read_text("utf-8")
    listed = corrections((ROOT / "docs" / "seeds" / f"{name}.md").read_text("utf-8"))
    ours = (golden / f"seed-{name}.md").read_text("utf-8")
    found = Comparison(seed, ours, listed).run()
    assert found.seen > 50
    assert found.missing == []
    assert unused(listed) == []
    assert [said for one in listed for said in one.ours if said not in ours] == []
    assert [said for one in listed for said in one.seed if said not in seed] == []


@pytest.mark.parametrize("name", SEEDS)
def test_without_the_corrections_something_is_missing(name, golden):
    seed = (golden.parent / "seeds" / f"{name}.md").read_text("utf-8")
    ours = (golden / f"seed-{name}.md").read_text("utf-8")
    listed = corrections((ROOT / "docs" / "seeds" / f"{name}.md").read_text("utf-8"))
    assert len(Comparison(seed, ours, []).run().missing) >= len(listed)


@pytest.mark.parametrize(
    ("name", "said", "instead"),
    [
        ("001", "| FP8 Native | 51 |", "| FP8 Native | 50 |"),
        ("001", "940,800, 1.79x", "940,800, 1.78x"),
        ("002", "77/79 | 0 | 0/0 | 97.5%", "78/79 | 0 | 0/0 | 98.7%"),
        ("003", "| 512 | 7.79 | 525,700 |", "| 512 | 7.79 | 525,000 |"),
        ("004", "| `TestFP8Compiler` | 8 |", "| `TestFP8Compiler` | 7 |"),
        ("004", "`test_fp8_stats` | passed", "`test_fp8_stats` | failed"),
        ("004", "0.3961 ms", "0.3960 ms"),
    ],
)
def test_a_changed_figure_is_missed(name, said, instead, golden):
    seed = (golden.parent / "seeds" / f"{name}.md").read_text("utf-8")
    ours = (golden / f"seed-{name}.md").read_text("utf-8")
    assert said in ours
    listed = corrections((ROOT / "docs" / "seeds" / f"{name}.md").read_text("utf-8"))
    lying = ours.replace(said, instead)
    found = Comparison(seed, lying, listed).run()
    lost = [one for c in listed for one in c.ours if one not in lying]
    assert found.missing or lost

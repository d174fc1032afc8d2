"""What stands in a table stands in the model: no template makes up a figure."""

from __future__ import annotations

import pytest

from orchestrator.domain.units import measured
from reports import format as fmt
from reports.registry import model_of, render
from tests.unit.reports.model_leaves import numbers, numerals, texts
from tests.unit.reports.stories import STORIES, release, story
from tests.unit.reports.tables import tables

WRITERS = {
    int: (fmt.count, fmt.size, fmt.memory, fmt.number),
    float: (fmt.number, fmt.percent, fmt.duration, fmt.seconds, fmt.ratio),
}
MONEY = (fmt.usd, fmt.price, fmt.part, fmt.cents, fmt.each)


def sayable(model) -> set[str]:
    """Every numeral that the model's figures and words can be written as."""
    said = set()
    for _, value in numbers(model):
        for write in WRITERS.get(type(value), MONEY):
            said |= set(numerals(write(value)))
    for text in texts(model):
        said |= set(numerals(text)) | set(numerals(measured(text)))
    return said


def moments(model) -> set[str]:
    rows = [row.at for row in getattr(model, "timeline", ())]
    rows += [row.at for row in getattr(model, "notices", ())]
    for told in getattr(model, "rows", (model,)):
        rows += [row.at for row in told.provenance.decisions]
    for row in getattr(model, "attempts", ()):
        rows += [row.opened_at, row.closed_at]
    return {part for at in rows for part in numerals(fmt.moment(at))}


def assert_sayable(model, text):
    known = sayable(model) | moments(model)
    cells = [cell for table in tables(text) for row in table[1:] for cell in row]
    found = {numeral for cell in cells for numeral in numerals(cell)}
    assert found, "no number was read: the test would prove nothing"
    assert found - known == set()


@pytest.mark.parametrize("name", [name for name in STORIES if name != "hostile"])
def test_platform(name, templates):
    evidence = story(name)
    text = render("platform", evidence, format="md", templates=templates)
    assert_sayable(model_of("platform", evidence), text)


def test_summary(templates):
    text = render("summary", release(), format="md", templates=templates)
    model = model_of("summary", release())
    counts = {str(len(total.cells)) for total in (model.total, model.accelerators)}
    cells = [c for table in tables(text) for row in table[1:] for c in row]
    found = {numeral for cell in cells for numeral in numerals(cell)}
    assert found - sayable(model) - moments(model) - counts == set()

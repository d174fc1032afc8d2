"""Whatever a machine calls things, a report's shape stays its own."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from orchestrator.domain.root_cause import RootCause
from reports.registry import KINDS, render
from tests.unit.reports.hostile_text import EVIL, hostile
from tests.unit.reports.stories import STORIES, story
from tests.unit.reports.tables import rendered_rows, tables
from tests.unit.reports.test_diagnosed import found, with_answers

OURS = {
    "!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "strong",
    "em", "br", "hr", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "ul", "li", "a",
    "blockquote", "img", "span",
}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name == "href"]


def check_shape(text):
    """Each table has one width, by its bars and by the parser that makes the pages; no tag."""
    found = tables(text)
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}, table[0]
    assert rendered_rows(text) == [len(row) for table in found for row in table]
    assert "<" not in re.sub(r"(?ms)^```$.*?^```$|<1 ms|<\$0|<0.1%", "", text)
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_story_keeps_the_shape_of_every_report(kind, name, templates):
    based = replace(story(name), base=story("local"))
    for form in ("html", "json"):
        assert render(kind, based, format=form, templates=templates)
    check_shape(render(kind, based, format="md", templates=templates))


@pytest.mark.parametrize("base", ["hostile", "local"])
def test_names_that_came_and_went_keep_the_shape_of_a_comparison(base, templates):
    for one, other in (("hostile", base), (base, "hostile")):
        check_shape(render("compare", replace(story(one), base=story(other)), templates=templates))


def test_so_does_whatever_was_tried_beside_a_failure(templates):
    answers = tuple(
        found(word, RootCause.UNKNOWN, cell="rack-2", why=word, changed=word) for word in EVIL
    )
    check_shape(render("platform", with_answers(story("hostile"), *answers), templates=templates))


@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_a_page_has_no_tag_but_ours(kind, templates):
    page = render(kind, story("hostile"), format="html", templates=templates)
    tags = Tags()
    tags.feed(page)
    assert tags.seen <= OURS
    allowed = {"href", "lang", "charset", "name", "content", "http-equiv", "class", "src", "alt"}
    allowed |= {"scope"}
    assert tags.attributes <= allowed
    assert set(tags.links) <= {"rack-2/SUMMARY.html"}
    assert "alert(1)" in page


def test_markdown_itself_holds_no_tag_and_no_control_character(templates):
    text = render("platform", story("hostile"), format="md", templates=templates)
    outside = re.sub(r"(?ms)^```$.*?^```$", "", text)
    assert "<" not in outside
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]", text) is None
    text.encode("utf-8")


def test_fenced_blocks_are_closed_where_we_close_them(templates):
    text = render("platform", story("hostile"), format="md", templates=templates)
    assert [line for line in text.splitlines() if line.startswith("```")] == ["```", "```"]
    headings = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(headings) == 1


def test_long_lists_are_bounded_and_say_what_is_left(templates):
    text = render("platform", story("hostile"), format="md", templates=templates)
    assert "…and 1,992 more; its log was not collected." in text
    assert len(text) < 200_000


def test_two_thousand_failures_name_the_log(templates):
    from dataclasses import replace

    from orchestrator.domain.outcome import Outcome
    from orchestrator.domain.run_record import ArtifactRecord
    from tests.unit.reports.builders import evidence_of

    made, jobs = hostile()
    made = replace(made, artifacts=(ArtifactRecord("x.txt", 1, "0" * 64),))
    evidence = evidence_of((made, jobs), outcome=Outcome.FAILED)
    text = render("platform", evidence, format="md", templates=templates)
    assert "…and 1,992 more in `x.txt`." in text

"""Whatever a machine calls things, a report's shape stays its own."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reports.markdown import cell, code, plain
from reports.registry import render
from tests.unit.reports.evil import EVIL, hostile
from tests.unit.reports.stories import STORIES, release, story
from tests.unit.reports.tables import rendered_rows, split, tables

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


@pytest.mark.parametrize("name", STORIES)
def test_every_table_has_one_width(name, templates):
    text = render("platform", story(name), format="md", templates=templates)
    for table in tables(text):
        assert {len(row) for row in table} == {len(table[0])}, table[0]


def test_the_renderer_sees_the_rows_that_were_written(templates):
    text = render("platform", story("hostile"), format="md", templates=templates)
    written = [len(row) for table in tables(text) for row in table]
    assert len(written) > 150
    assert rendered_rows(text) == written


@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_a_page_has_no_tag_but_ours(kind, templates):
    page = render(kind, story("hostile"), format="html", templates=templates)
    tags = Tags()
    tags.feed(page)
    assert tags.seen <= OURS
    allowed = {"href", "lang", "charset", "name", "content", "http-equiv", "class", "src", "alt"}
    allowed |= {"scope"}
    assert tags.attributes <= allowed
    assert set(tags.links) <= {"rack-2/SUMMARY.md"}
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
    assert "…and 1,992 more; its log was not brought home." in text
    assert len(text) < 200_000


def test_two_thousand_failures_name_the_log(templates):
    from dataclasses import replace

    from orchestrator.domain.outcome import Outcome
    from orchestrator.domain.record import ArtifactRecord
    from tests.unit.reports.builders import evidence_of

    made, jobs = hostile()
    made = replace(made, artifacts=(ArtifactRecord("x.txt", 1, "0" * 64),))
    evidence = evidence_of((made, jobs), outcome=Outcome.FAILED)
    text = render("platform", evidence, format="md", templates=templates)
    assert "…and 1,992 more in `x.txt`." in text


@pytest.mark.parametrize("word", EVIL)
def test_a_cell_says_what_it_was_given(word):
    html = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .render(f"| a | b |\n|---|---|\n| {cell(word)} | {code(word)} |\n")
    )
    found = re.findall(r"<td>(.*?)</td>", html, re.DOTALL)
    assert len(found) == 2
    import html as escapes

    texts = [escapes.unescape(re.sub(r"</?code>", "", part)) for part in found]
    assert texts == [plain(word).strip() or "—"] * 2


@given(st.text(max_size=60))
def test_any_text_is_one_cell(word):
    row = f"| {cell(word)} | {code(word)} | end |"
    assert len(split(row)) == 3
    assert rendered_rows(f"| a | b | c |\n|---|---|---|\n{row}\n") == [3, 3]


@given(st.text(max_size=60))
def test_any_text_in_a_paragraph_stays_one(word):
    tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(str(cell(word)))
    assert [t.type for t in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {t.type for t in tokens[1].children or ()} <= {"text", "text_special", "code_inline"}


def test_a_summary_with_hostile_metrics_keeps_its_tables(templates):
    for evidence in (release(), story("hostile")):
        text = render("summary", evidence, format="md", templates=templates)
        for table in tables(text):
            assert {len(row) for row in table} == {len(table[0])}

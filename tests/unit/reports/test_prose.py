"""What people wrote: paragraphs, lists, emphasis and code, and nothing else whatever they write."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reports.markdown import fenced, one_line, written
from tests.unit.reports.hostile_text import EVIL

PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKS = st.text(st.sampled_from("`*_#->|[]()!<&~ \\\n\t1.a=+:"), max_size=60)
ALLOWED = {"p", "ul", "ol", "li", "strong", "code", "pre"}


def tags(html: str) -> set[str]:
    return set(re.findall(r"<(\w+)", html))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one **bold** word", "<p>one <strong>bold</strong> word</p>"),
        ("a `code()` span", "<p>a <code>code()</code> span</p>"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>"),
        ("# a", "<p># a</p>"),
        ("> a", "<p>&gt; a</p>"),
        ("[a](http://b)", "<p>[<code>a](http://b</code>)</p>"),
        ("a\n===", "<p>a\n===</p>"),
        ("<b>", "<p>&lt;b&gt;</p>"),
    ],
)
def test_what_is_kept(text, html):
    assert PARSER.render(written(text)).strip() == html


@given(st.one_of(MARKS, st.text(max_size=80)))
def test_nothing_else_can_be_written(text):
    assert tags(PARSER.render(f"before\n\n{written(text)}\n\n*after*\n")) <= ALLOWED | {"em"}
    assert "\n" not in one_line(text)


@given(st.lists(st.one_of(MARKS, st.sampled_from(EVIL)), max_size=6))
def test_a_fence_is_closed_where_we_close_it(parts):
    text = "\n".join(parts)
    page = PARSER.render(f"{fenced(text)}\n\nafter\n")
    assert page.count("<pre>") == 1
    assert page.endswith("</code></pre>\n<p>after</p>\n")


def test_code_keeps_its_indentation():
    assert fenced("def f():\n    return 1\n") == "```\ndef f():\n    return 1\n```"
    assert fenced("a\n```\nb").startswith("````\n")


def test_long_texts_are_bounded():
    assert "(+299 lines)" in written("x\n\n" * 250)
    assert "(+3,000 characters)" in written("y" * 5000)

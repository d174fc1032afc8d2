"""A page: figures below each other, outcomes in colour, names unbroken, nothing fetched."""

from __future__ import annotations

import re

import pytest

from reports.compare_text import stamped
from reports.html import render_html
from reports.registry import model_of, render
from tests.unit.reports.pairs import head
from tests.unit.reports.stories import release, story


def body(markdown, templates):
    page = render_html(markdown, title="x", templates=templates)
    return page[page.index("<body>") :]


def table(rows, templates):
    head = "| a | b |\n|---|---|\n"
    return body(head + "".join(f"| {a} | {b} |\n" for a, b in rows), templates)


@pytest.mark.parametrize(
    "said",
    [
        "1", "1,492", "94.6%", "$0.1823", "-$0.1", "+1.2%", "46/46", "1,215/1,265", "1.79x",
        "4.2 s", "638 s", "1e-05",
    ],
)  # fmt: skip
def test_figures_stand_below_each_other(said, templates):
    html = table([("x", said), ("y", "—"), ("z", f"**{said}**")], templates)
    assert html.count('<td class="n') == 3
    assert '<th scope="col" class="n">b</th>' in html


@pytest.mark.parametrize("said", ["1 of 2", "abc", "1.2.3", "— (no machine was rented)", ""])
def test_words_do_not(said, templates):
    assert 'class="n"' not in table([("x", said)], templates)


def test_a_reason_among_figures_is_read_as_words(templates):
    html = table([("x", "1"), ("y", "— (not measured)")], templates)
    assert html.count('<td class="n">') == 1
    assert '<td class="some">— (not measured)</td>' in html


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("✅ PASSED (degraded)", '<span class="good">✔ PASSED</span> (degraded)'),
        ("❌ FAILED (tests)", '<span class="bad">✘ FAILED</span> (tests)'),
        ("∅ NOT AVAILABLE", '<span class="quiet">∅ NOT AVAILABLE</span>'),
        ("◐ PARTIAL: 12/14", '<span class="so-so">◐ PARTIAL</span>: 12/14'),
        ("✅ passed & <b>", "✅ passed &amp; &lt;b&gt;"),
        ("❌ FAILURE", "❌ FAILURE"),
        ("`✅ PASSED`", "<code>✅ PASSED</code>"),
    ],
)
def test_an_outcome_has_a_colour_and_its_words(said, shown, templates):
    assert f"<p>{shown}</p>" in body(said, templates)


def test_what_failed_is_seen_in_a_list_of_tests(templates):
    html = table([("x", "failed (why)"), ("y", "passed"), ("z", "failed to be a word")], templates)
    assert html.count('class="bad') == 1


def test_short_names_are_not_broken_and_long_texts_have_room(templates):
    html = table([("`aws-mi300x`", "word " * 20), (f"`{'x' * 60}`", "us-east-1a")], templates)
    assert '<code class="name">aws-mi300x</code>' in html
    assert f"<code>{'x' * 60}</code>" in html
    assert '<td class="long">word' in html
    assert '<td class="name">us-east-1a</td>' in html


@pytest.mark.parametrize("kind", ["summary", "platform", "results", "backend", "cost", "compare"])
def test_a_page_says_what_it_is_and_fetches_nothing(kind, templates):
    evidence = {"platform": story("a10g"), "compare": head()}.get(kind, release())
    page = render(kind, evidence, format="html", templates=templates)
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert "<title>torchbridge" in page or "<title>AWS NVIDIA A10G" in page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|@import|url\(|https?://(?!www\.w3\.org)", page)
    assert all(re.search(r'alt="[^"]{10,}"', image) for image in re.findall(r"<img[^>]*>", page))
    heads = re.findall(r"<th([^>]*)>(.*?)</th>", page)
    assert all('scope="col"' in attributes and said for attributes, said in heads)
    assert len(page) < 200_000


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ("torchbridge 0.4.39", "Another version"),
        ("kernel_pytorch 0.4.40", "Another name"),
        ("KernelPyTorch v0.4.4", "Another name and another version"),
        ("Torch_Bridge v0.4.40", "Another "),
    ],
)
def test_what_is_wrong_with_a_stamp_is_told_apart(stamp, said):
    assert stamped(stamp, model_of("summary", release())) == said


def test_columns_in_which_nothing_stands_are_left_out(templates):
    text = render("platform", story("a10g"), templates=templates)
    assert "| Check | Outcome | Reason |" in text
    assert "| Check | Outcome | Value |" in render(
        "platform", story("built-in"), templates=templates
    )
    assert "| Section |" not in render("backend", release(), templates=templates)


def test_links_to_reports_lead_to_the_pages_beside_this_one(templates):
    evidence = release()
    page = render("summary", evidence, format="html", templates=templates)
    for cell in evidence.record.cells:
        assert f'<a href="{cell.id}/SUMMARY.html">{cell.id}/SUMMARY.html</a>' in page
    assert "SUMMARY.html (this file)" in page
    assert "SUMMARY.md" not in page


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_report_without_files_beside_it_links_none(templates, form):
    page = render("summary", release(), format=form, alone=True, templates=templates)
    assert "SUMMARY." not in page
    assert "plots/" not in page
    assert ("data:image/svg+xml" in page) is (form == "html")
    beside = render("summary", release(), format=form, templates=templates)
    assert ("The plots of each report lie in" in beside) is (form == "md")


def test_a_comparison_lies_in_no_folder(templates):
    assert "plots/" not in render("compare", head(), templates=templates)
    assert "data:image/svg+xml" in render("compare", head(), format="html", templates=templates)

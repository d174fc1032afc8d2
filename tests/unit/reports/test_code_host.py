"""Markdown as a code host shows it: by the host's own renderer, the same as by ours.

A host turns more into links, notifications, pictures and formulas than its renderer does: that is
done to the text afterwards, and code font is what it leaves alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from orchestrator.domain.commit import Commit
from orchestrator.domain.event_facts import CheckFact
from orchestrator.domain.failure_signature import Failure, failure_groups, signature_of
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.known_issue import CellScope, IssueMatch, IssueScope, KnownIssue, uses
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.quarantine import quarantined_of
from orchestrator.domain.run_record import Evidence
from reports.html import render_html
from reports.markdown import cell, code, plain, written
from reports.registry import render
from tests.unit.reports.builders import Jobs, T, cell_of, evidence_of, results_of
from tests.unit.reports.foreign_stories import AT
from tests.unit.reports.hostile_text import EVIL
from tests.unit.reports.pairs import head
from tests.unit.reports.stories import release, story

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "reports"
DOCUMENTS = sorted(path.name for path in GOLDEN.glob("*.md"))
PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
EXTENSIONS = ["table", "autolink", "strikethrough", "tagfilter", "tasklist"]
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
KEPT = {
    *HEADINGS, "p", "ul", "ol", "li", "table", "tr", "th", "td", "strong", "em", "code", "pre",
    "blockquote", "br", "hr", "img", "a", "del", "input", "sup",
}  # fmt: skip

GLYPHS = {"✔": "✅", "✘": "❌"}

# What a host makes of text that is not in code font, after it was rendered.
MENTION = re.compile(r"(?<![\w/.])@[0-9A-Za-z][0-9A-Za-z-]*")
ISSUE = re.compile(r"(?<![\w&])#\d+|\b[Gg][Hh]-\d+|[\w-]+/[\w-]+#\d+")
COMMIT = re.compile(r"(?<!\w)(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}(?!\w)")
EMOJI = re.compile(r":(?:[a-z+-][a-z0-9_+-]*|100|1234):")
FORMULA = re.compile(r"\$(?!\d)[^$]*\$|\$[^\s$][^$]*\$(?!\d)")
AFTERWARDS = (MENTION, ISSUE, COMMIT, EMOJI, FORMULA)


class Seen(HTMLParser):
    """What is on a page: its elements and their words, without what only styles them."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.said: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.images: list[str] = []
        self.outside_code: list[str] = []
        self.words = ""

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        if tag == "a":
            self.links.append(known.get("href", ""))
        if tag == "img":
            self.images.append(known.get("alt", ""))
        if tag in KEPT:
            self.said.append((tag, ""))
            self.inside += [] if tag in ("br", "hr", "img", "input") else [tag]

    def handle_endtag(self, tag):
        if tag in KEPT and tag in self.inside:
            while self.inside.pop() != tag:
                pass
            self.said.append((f"/{tag}", ""))

    def handle_data(self, data):
        self.words += data
        if not self.inside:
            return
        if self.said and self.said[-1][0] == "words":
            data = self.said.pop()[1] + data
        if "pre" not in self.inside:
            data = re.sub(r"[ \t\r\n]+", " ", data)
        if data.strip():
            self.said.append(("words", data))
        if not {"code", "pre"} & set(self.inside):
            self.outside_code.append(data)


def seen(html: str) -> Seen:
    parser = Seen()
    parser.feed(html)
    parser.close()
    parser.words = parser.words.strip()
    parser.said = [(tag, said.strip(" ")) for tag, said in parser.said]
    return parser


def by_the_host(text: str) -> str:
    return cmarkgfm.markdown_to_html_with_extensions(
        text, options=Options.CMARK_OPT_FOOTNOTES, extensions=EXTENSIONS
    )


def by_us(text: str, templates: Path) -> str:
    """Our page, with the letters for its glyphs and its links to other pages turned back."""
    page = render_html(text, title="x", templates=templates)
    body = page[page.index("<body>") :].replace("/SUMMARY.html", "/SUMMARY.md")
    return re.sub(r"(<span class=\"\S+\">)([✔✘])", lambda m: m[1] + GLYPHS[m[2]], body)


def check(text: str, templates: Path) -> None:
    theirs, ours = seen(by_the_host(text)), seen(by_us(text, templates))
    # Without its pictures our page has only their names.
    named = [said for said in theirs.said if said[0] != "img"]
    if theirs.images:
        ours.said = [said for said in ours.said if said[1] not in theirs.images]
    assert named == ours.said
    assert theirs.links == ours.links
    assert all(re.fullmatch(r"[\w.-]+/SUMMARY\.md", link) for link in theirs.links)
    pictures = re.findall(r"(?m)^!\[[^]]*\]\((plots/[a-z0-9-]+\.svg)\)$", text)
    assert len(theirs.images) == len(pictures)
    assert not {"del", "input", "sup"} & {tag for tag, _ in theirs.said}
    for words in theirs.outside_code:
        for turned in AFTERWARDS:
            assert not turned.search(words), (turned.pattern, words)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_report_is_the_same_on_a_code_host(name, templates):
    check((GOLDEN / name).read_text("utf-8"), templates)


@pytest.mark.parametrize("kind", ["summary", "platform", "results", "backend", "cost", "comment"])
def test_so_is_one_whose_every_text_wants_to_be_more(kind, templates):
    check(render(kind, story("hostile"), format="md", templates=templates), templates)


def test_so_is_a_comparison(templates):
    check(render("compare", head(), format="md", templates=templates), templates)
    check(render("summary", release(), format="md", templates=templates), templates)


TURNED = (
    "@user", "thanks @org/team, all", "#12", "(#12)", "GH-7", "owner/repo#3", "user@example.com",
    "https://example.com/a?b=c&d=e", "see www.example.com.", "ftp://example.com", "mailto:a@b.c",
    "xmpp:a@b.c/d", "0123abc fixes it", "$x$", "$ x $", "cost $5 and $x$", "$1$", "$`x`$", "$$y$$",
    ":tada:", "a.py:100: in f", "::rocket::", "~gone~", "~~gone~~", "[^1]", "[^1]: note",
    "[ ] todo", "[x] done", "[!NOTE]", "> [!WARNING]", "[a]: /b", "[a]: /b 'c'", "[a][b]", "[a](b)",
    "@a@b", "`@a`", "|@a|", "\\@a", "**@a**", "<@a>", "&@a;", "http://a|b", "http://`a`", "*@a",
    "\\http://a.b", "a_@b.c", "_@b.c", "git@github.com:o/r.git", "x=$HOME/a:$PATH", "@a`b", "`@a",
    "-- -", "- -- -", "= =", "-", "--", "[]:a:", "[a @b]: /c", "(@a)(@b)", "[@a]:", "0@.A",
    "www.", "(www.)", "_www.*", "_GH-1", "@_",
    "* a", "+ a", "- a", "1) a", "===", "***", "___", "<http://a.b>", "&copy;", "&#64;user",
    "www.a.b/`", "@a\\", "\\`@a\\`", "$a|b$", "http://a.b)", "@a's", '"@a"', "@a:", ":a:b:",
)  # fmt: skip


def talkative(word: str) -> Evidence:
    """A run whose every text is the word, or begins with it."""
    tests = results_of("x", [(f"t.py::t[{word}]", T.FAILED), (word, T.FAILED)], message=word)
    jobs = Jobs().suite("x", word, tests, Outcome.FAILED, "tests")
    check = CheckFact("d", word, "failed", word, word, word, word)
    jobs.command("d", "demo", word, Outcome.FAILED, reason="checks", checks=[check])
    cell = cell_of(Platform(id="a", provider="local"), jobs, Outcome.ERRORED, "agent", detail=word)
    evidence = evidence_of((cell, jobs), outcome=Outcome.FAILED, subject=word)
    commit = Commit(sha="1f0c2d9a41b2" + "0" * 28, branch=word, author=word)
    run = replace(evidence.record.run, matrix_name=word, subject_version=word, commit=commit)
    return replace(evidence, record=replace(evidence.record, run=run))


@pytest.mark.parametrize("word", [*TURNED, *EVIL])
def test_a_comment_calls_nobody_and_links_nowhere(word, templates):
    text = render("comment", talkative(word), format="md", templates=templates)
    check(text, templates)
    theirs = seen(by_the_host(text))
    assert [tag for tag, _ in theirs.said if tag in HEADINGS] == ["h1", "h2"]
    assert theirs.links == theirs.images == []
    rows = re.findall(r"<tr>.*?</tr>", by_the_host(text), re.DOTALL)
    assert [row.count("<td") + row.count("<th") for row in rows] == [7, 7, *[4] * (len(rows) - 2)]


def test_a_comment_says_that_the_checkout_had_local_changes(templates):
    evidence = talkative("main")
    dirty = replace(evidence.record.run.commit, is_dirty=True)
    run = replace(evidence.record.run, commit=dirty)
    evidence = replace(evidence, record=replace(evidence.record, run=run))
    text = render("comment", evidence, format="md", templates=templates)
    assert "commit `1f0c2d9a41b2+` on main by main, with local changes" in text


def failing_twice():
    """A test that fails on two platforms: the evidence, and its failures."""
    said = results_of("x", [("t.py::test_a", T.FAILED)], message="boom")
    jobs = Jobs().suite("x", "X", said, Outcome.FAILED, "tests")
    cells = [
        (cell_of(Platform(id=name, provider="local"), jobs, Outcome.FAILED, "tests"), jobs)
        for name in ("cpu-a", "cpu-b")
    ]
    evidence = evidence_of(*cells, outcome=Outcome.FAILED)
    failures = [
        Failure(mark, "t.py::test_a", "x", "r", name, name, "1", AT)
        for name in ("cpu-a", "cpu-b")
        if (mark := signature_of(evidence.tests[name][0])) is not None
    ]
    return evidence, failures


def test_a_comment_and_a_summary_mark_failures_in_quarantine(templates):
    evidence, failures = failing_twice()
    quarantine = Quarantine(
        id="Q-0001", product="p", nodeid="t.py::test_a", reason="no seed", owner="me",
        opened=AT, expires=AT + timedelta(days=9),
    )  # fmt: skip

    def shown(kind, *, platforms=(), at=AT):
        found = quarantined_of([replace(quarantine, platforms=platforms)], failures, at=at)
        groups = failure_groups(failures)
        record = replace(evidence.record, quarantined=found, failure_groups=groups)
        return render(kind, replace(evidence, record=record), format="md", templates=templates)

    assert "(in quarantine Q-0001) |" in shown("comment")
    assert "(in quarantine Q-0001: 1 of 2) |" in shown("comment", platforms=("cpu-b",))
    assert "in quarantine" not in shown("comment", at=AT + timedelta(days=9))
    assert "| Q-0001 |" in shown("summary")


def test_a_comment_marks_known_issues_with_their_states(templates):
    evidence, failures = failing_twice()
    issue = KnownIssue(
        id="KI-0001", product="p", title="known", match=IssueMatch(contains="boom"), owner="me",
        opened=AT.date(), expires=AT.date(), scope=IssueScope(platforms=("cpu-b",)),
    )  # fmt: skip

    def matched(on, **changes):
        ran = [CellScope(name, name, "1", ("x",), {}) for name in ("cpu-a", "cpu-b")]
        used = uses([replace(issue, **changes)], failures, ran, on=on)
        record = replace(evidence.record, known_issues=used)
        return render("comment", replace(evidence, record=record), templates=templates)

    assert "(known issue KI-0001 (applies): 1 of 2) |" in matched(AT.date())
    assert "(known issue KI-0001 (applies)) |" in matched(AT.date(), scope=IssueScope())
    assert "(known issue KI-0001 (expired): 1 of 2) |" in matched(AT.date() + timedelta(days=1))
    assert "(known issue KI-0001 (ended): 1 of 2) |" in matched(AT.date(), ended_at=AT)


def test_a_comment_on_many_cells_has_room_on_a_code_host(templates):
    """A code host refuses comments of more than 65,536 characters."""
    tests = [(f"t.py::test_{number}", T.FAILED) for number in range(30)]
    said = [x for name, _ in tests for x in results_of("x", [(name, T.FAILED)], message=name * 30)]
    jobs = Jobs().suite("x", "X", said, Outcome.FAILED, "tests")
    many = [
        (
            cell_of(Platform(id=f"aws-g5-{n:03}", provider="local"), jobs, Outcome.FAILED, "tests"),
            jobs,
        )
        for n in range(300)
    ]
    text = render("comment", evidence_of(*many, outcome=Outcome.FAILED), templates=templates)
    assert "`aws-g5-009`, and 290 more | t.py" in text
    assert len(text) < 65_536 - 1_000


ANY = st.one_of(
    st.text(max_size=60),
    st.text(st.sampled_from("`*_#->|[]()!<&~ \\@$:^x1./ahtpw"), max_size=30),
    st.lists(st.sampled_from([*TURNED, *EVIL, " ", "`", "|", "\\"]), max_size=4).map("".join),
)


def cells(html: str) -> list[str]:
    found = re.findall(r"<td[^>]*>(.*?)</td>", html, re.DOTALL)
    return [seen(f"<p>{part}</p>").words.replace("\xa0", " ") for part in found]


def both(text: str) -> list[str]:
    return [by_the_host(text), PARSER.render(text)]


@pytest.mark.parametrize("word", [*TURNED, *EVIL])
def test_a_text_means_itself_everywhere(word):
    means_itself(word)


@given(ANY)
@example("`@a`")
def test_any_text_means_itself_everywhere(word):
    means_itself(word)


def means_itself(word: str) -> None:
    expected = plain(word).strip().replace("\xa0", " ") or "—"
    rows = f"| a | b |\n|---|---|\n| {cell(word)} | {code(word)} |\n"
    for html in both(rows):
        assert cells(html) == [expected] * 2
    for around in ("{}", "- {}", "> {}", "**{}**"):
        around = around.format(cell(word)) + "\n"
        host, ours = (seen(html) for html in both(around))
        assert host.said == ours.said
        assert host.words.replace("\xa0", " ") == expected
        tags = {tag.strip("/") for tag, _ in host.said}
        assert tags <= {"p", "code", "ul", "li", "blockquote", "strong", "words"}
        assert not host.links
        for words in host.outside_code:
            assert not [t.pattern for t in AFTERWARDS if t.search(words)], words


@given(ANY)
def test_what_people_write_calls_nobody(word):
    host = seen(by_the_host(f"before\n\n{written(word)}\n\nafter\n"))
    assert host.links == host.images == []
    assert not {tag for tag, _ in host.said} & {"del", "input", "sup", "table", *HEADINGS}
    for words in host.outside_code:
        assert not [t.pattern for t in AFTERWARDS if t.search(words)], words

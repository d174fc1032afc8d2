"""A page from a report's Markdown: one file that can be mailed, without scripts or raw HTML."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token

from reports.model.blocks import Plot

PAGE = "page.html.j2"
SHORT_NAME = 24
"""Characters of a name in code font that is never broken."""
SOME_TEXT, LONG_TEXT = 14, 40
"""Characters of a cell's text from which on it gets room of its own."""

_STATUS = re.compile(
    r"(?P<glyph>[✅❌◷⚠■⊘∅○◐–▸]) (?P<word>PASSED|FAILED|TIMED OUT|ERRORED|CANCELLED|NOT AVAILABLE"
    r"|NOT RUN|SKIPPED|PARTIAL|RUNNING|QUEUED)\b"
)
_GLYPHS = {"✅": "✔", "❌": "✘"}
"""Those of colour fonts, which not every computer has, as letters."""
_CLASSES = {
    "PASSED": "good", "FAILED": "bad", "ERRORED": "bad", "TIMED OUT": "bad", "PARTIAL": "so-so",
}  # fmt: skip
_BAD = re.compile(r"(?:failed|error|missing|timed out|\*\*INCONSISTENT\*\*)(?:$| \()")
_DASH = re.compile(r"—(?: \(|[⁰¹²³⁴⁵⁶⁷⁸⁹]+$)")
_HYPHENED = re.compile(r"[A-Za-z]\w*(?:-\w+)+")
_FIGURE = re.compile(
    r"[-+<>]{0,2}\$?[\d,]+(?:\.\d+)?(?:e[-+]?\d+)?(?:/[\d,]+)?(?:x|%| ?[kMG]?B| ?m?s)?"
)


def render_html(markdown: str, *, title: str, templates: Path, plots: Sequence[Plot] = ()) -> str:
    """Render Markdown as one self-contained page; plots are embedded."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("text", _text)
    env = {"plots": {plot.path: plot for plot in plots}}
    tokens = parser.parse(markdown, env)
    _set_tables(tokens)
    body = parser.renderer.render(tokens, parser.options, env)
    return _environment(templates).get_template(PAGE).render(title=title, body=body)


@cache
def _environment(templates: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
    )


def _image(
    _renderer: object,
    tokens: Sequence[Token],
    index: int,
    _options: object,
    env: Mapping[str, Mapping[str, Plot]],
) -> str:
    """Return one of the report's plots as an inert image; of others the alternative text."""
    token = tokens[index]
    plot = env["plots"].get(str(token.attrs.get("src")))
    if plot is None:
        return html.escape(token.content)
    data = base64.b64encode(plot.svg.encode()).decode("ascii")
    told = html.escape(f"{plot.title}. {plot.alt_text}", quote=True)
    return f'<img alt="{told}" src="data:image/svg+xml;base64,{data}">'


def _text(
    _renderer: object, tokens: Sequence[Token], index: int, _options: object, _env: object
) -> str:
    """Return text with outcomes in their colours."""
    return _STATUS.sub(_coloured, escapeHtml(tokens[index].content))


def _coloured(match: re.Match[str]) -> str:
    glyph, word = match["glyph"], match["word"]
    kind = _CLASSES.get(word, "quiet")
    return f'<span class="{kind}">{_GLYPHS.get(glyph, glyph)} {word}</span>'


def _set_tables(tokens: Sequence[Token]) -> None:
    """Align numbers, and set widths of long texts and names."""
    for table in _tables(tokens):
        heads, rows = table[0], table[1:]
        for at, (head, _) in enumerate(heads):
            head.attrSet("scope", "col")
            column = [row[at] for row in rows if at < len(row)]
            if at and _is_figures([said.content for _, said in column]):
                head.attrSet("class", "n")
                for opening, said in column:
                    if not _is_dash(said.content):
                        opening.attrSet("class", "n")
        for opening, said in (cell for row in rows for cell in row):
            _set_cell(opening, said)


def _tables(tokens: Sequence[Token]) -> Iterator[list[list[tuple[Token, Token]]]]:
    """Yield the rows and cells of each table."""
    rows: list[list[tuple[Token, Token]]] = []
    for token, after in pairwise(tokens):
        if token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append((token, after))
        if after.type == "table_close":
            yield rows


def _is_figures(column: Sequence[str]) -> bool:
    """Whether every cell is a number, a dash or empty."""
    said = [text.strip("*") for text in column if text.strip("*—") and not _is_dash(text)]
    return bool(said) and all(_FIGURE.fullmatch(text) for text in said)


def _is_dash(text: str) -> bool:
    """Whether the text is a dash with a reason or footnote."""
    return _DASH.match(text) is not None


def _set_cell(opening: Token, token: Token) -> None:
    if _BAD.match(token.content):
        opening.attrJoin("class", "bad")
    if len(token.content) > SOME_TEXT:
        opening.attrJoin("class", "long" if len(token.content) > LONG_TEXT else "some")
    elif _HYPHENED.fullmatch(token.content):
        opening.attrJoin("class", "name")
    for child in token.children or ():
        if child.type == "code_inline" and len(child.content) <= SHORT_NAME:
            child.attrJoin("class", "name")

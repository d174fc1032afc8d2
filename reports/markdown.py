"""Markdown from a model. Whatever a template prints is escaped, unless a filter vouches for it.

Names of tests, messages, devices and files come from machines: they are an attacker's to choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports import figures
from reports import format as fmt
from reports.model.plot import Plot
from reports.model.values import Absent, ReportModel, Status

CELL_LIMIT = 300
"""Characters of one text in a table; the whole stands in the raw files."""

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_SPECIAL = re.compile(r"[\\`*|]|~(?=~)|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=\])\(|!(?=\[)")
_ENTITY = re.compile(r"&(?=#|[A-Za-z])")
_BLOCK_START = re.compile(
    r"^(?:#{1,6}(?=\s|$)|[+-](?=\s|$)|[=-]+$|(?P<digits>\d+)(?=[.)](?:\s|$)))"
)
_PLAIN = re.compile(r"[^`|\\<>&]+")


class Markdown(str):
    """Text that is Markdown already: it is printed as it is."""

    __slots__ = ()


def plain(value: str, *, limit: int = CELL_LIMIT) -> str:
    """One visible line: no ANSI sequences, no control or direction characters, bounded."""
    said = _INVISIBLE.sub("\ufffd", _BREAKS.sub(" ⏎ ", _ANSI.sub("", value).strip()))
    said = re.sub(r"\s+", " ", said)
    cut = len(said) - limit
    return f"{said[:limit].rstrip()}… (+{cut:,} characters)" if cut > 0 else said


def cell(value: object) -> Markdown:
    """Text that means only itself, in a table, a list or a paragraph."""
    if isinstance(value, Markdown):
        return value
    said = _SPECIAL.sub(r"\\\g<0>", plain(str(value)))
    said = _ENTITY.sub("&amp;", said).replace("<", "&lt;").replace(">", "&gt;")
    return Markdown(_BLOCK_START.sub(_escape_start, said) or "—")


def _escape_start(match: re.Match[str]) -> str:
    digits = match["digits"]
    return f"{digits}\\" if digits else f"\\{match[0]}"


def code(value: str) -> Markdown:
    """A name in code font where that is safe, else as escaped text."""
    said = plain(value)
    return Markdown(f"`{said}`") if _PLAIN.fullmatch(said) else cell(value)


def verbatim(value: object) -> Markdown:
    """One line inside a fenced block, which can neither end the block nor start a line."""
    return Markdown(plain(fmt.absent(value) if isinstance(value, Absent) else str(value)))


def _escaped(write: Callable[..., str]) -> Callable[..., Markdown]:
    return lambda value, **options: cell(write(value, **options))


def _print(value: object) -> str:
    if isinstance(value, Absent | Status):
        return cell(fmt.absent(value) if isinstance(value, Absent) else fmt.status(value))
    return cell(value) if isinstance(value, str) else str(value)


def environment(templates: Path) -> Environment:
    """The environment of the Markdown templates below a folder."""
    made = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        finalize=_print,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - that is HTML's escaping; `finalize` is Markdown's
    )
    for name in FORMATS:
        made.filters[name] = _escaped(getattr(fmt, name))
    for name in FIGURES:
        made.filters[name] = _escaped(getattr(figures, name))
    made.filters["differing"] = figures.differing
    made.filters |= {"cell": cell, "code": code, "verbatim": verbatim}
    made.tests["absent"] = lambda value: isinstance(value, Absent)
    made.globals |= {
        "br": Markdown("  "),
        "bar": lambda last: Markdown(" " if last else "│"),
        "plural": lambda n, word: cell(fmt.plural(n, word)),
    }
    return made


FORMATS = (
    "text", "count", "percent", "rate", "share", "checks", "number", "ratio", "duration",
    "seconds", "size", "memory", "usd", "moment", "date", "status", "outcome", "test_outcome",
    "pairs", "version", "price", "part", "cents", "each",
)  # fmt: skip
"""Filters: the writers of `reports.format`, escaped."""

FIGURES = (
    "heading", "figure", "compared", "caption", "highlight", "check_value", "check_tolerance",
)  # fmt: skip
"""Filters: the writers of `reports.figures`, escaped."""


def render_markdown(
    model: ReportModel, template: str, *, templates: Path, plots: Sequence[Plot] = ()
) -> str:
    """Fill a template, and settle the blank lines so that a layout never depends on the data."""
    text = environment(templates).get_template(template).render(report=model, plots=plots)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"

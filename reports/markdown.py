"""Markdown from a model. Whatever a template prints is escaped, unless a filter vouches for it.

Names of tests, messages, devices and files come from machines: they are an attacker's to choose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports import compare_text, metric_text, side_by_side_text
from reports import format as fmt
from reports.model.blocks import Plot
from reports.model.values import Absent, ReportModel, Status

CELL_LIMIT = 300
"""Maximum characters of a text in a table; the raw files have all of it."""
_AUTHORED_LINES = 200
_AUTHORED_LINE_LIMIT = 2_000
"""Maximum characters of one line."""

_MARKER = re.compile(r"^(?P<indent>[ \t]*)(?:(?P<bullet>[-*+])|(?P<number>\d{1,3})[.)])[ \t]+")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_BOLD = re.compile(r"(?<!\\)\\\*\\\*(?=\S)((?:(?!\\\*).)+?)(?<=\S)\\\*\\\*")
_AUTHORED_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_AUTHORED_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?")
_TICKS = re.compile(r"`+")
_AUTHORED_BREAK = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    r"\ue000-\ue001]"
)
_SPECIAL = re.compile(r"[\\`*|~]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=\])[(:]|!(?=\[)|\[(?=[!^])")
_ENTITY = re.compile(r"&(?=#|[A-Za-z])")
_BLOCK_START = re.compile(
    r"^(?:#{1,6}(?=\s|$)|[+-](?=\s|$)|[=-](?=[=\s-]*$)|\[|(?P<digits>\d+)(?=[.)](?:\s|$)))"
)
_TURNED = re.compile(
    r"@[\w.+-]|://|www\.|mailto:|xmpp:|#\d|(?<![0-9A-Za-z])[Gg][Hh]-\d|\$(?!\d)"
    r"|:(?:[a-z+-][a-z0-9_+-]*|100|1234):"
    r"|(?<![0-9A-Za-z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}(?![0-9A-Za-z])"
)
"""What a code host turns into a link, a notification, a picture or a formula: addresses, people,
issues, commits, `$x$`, `:name:`. A backslash stops none of that; only code font does."""
_MISSING = re.compile("—\ue000(.*?)\ue001")
_NOTES = "\ue000"
"""Where the reasons of missing values are listed."""
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_WORD = re.compile(r"[^\s`|\\<>&]+")
_AROUND = re.compile(r"(?P<before>[\"'(\[{*]*)(?P<core>.*?)(?P<after>[.,;!?\"')\]}*]*)")
_PLAIN = re.compile(r"[^`|\\<>&]+")


class Markdown(str):
    """Markdown text, which is printed unescaped."""

    __slots__ = ()


def plain(value: str, *, limit: int = CELL_LIMIT) -> str:
    """Return text as one visible line of bounded length, without control sequences."""
    said = _INVISIBLE.sub("\ufffd", _BREAKS.sub(" ⏎ ", _ANSI.sub("", value).strip()))
    said = re.sub(r"\s+", " ", said)
    cut = len(said) - limit
    return f"{said[:limit].rstrip()}… (+{cut:,} characters)" if cut > 0 else said


def cell(value: object, *, limit: int = CELL_LIMIT) -> Markdown:
    """Escape text for a table cell, a list or a paragraph."""
    if isinstance(value, Markdown):
        return value
    said = plain(str(value), limit=limit)
    parts: list[str] = []
    at = 0
    for start, end in _turned(said):
        parts += [_spoken(said[at:start]), f"`{said[start:end]}`"]
        at = end
    told = "".join([*parts, _spoken(said[at:])])
    return Markdown(_BLOCK_START.sub(_escape_start, told) or "—")


def _turned(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of words that a code host would link, without their markup."""
    for found in _WORD.finditer(text) if _TURNED.search(text) else ():
        if not _TURNED.search(found[0]):
            continue
        around = _AROUND.fullmatch(found[0])
        if around is not None and _TURNED.search(around["core"]):
            yield found.start() + around.start("core"), found.start() + around.end("core")
        else:
            yield found.span()


def _spoken(text: str) -> str:
    """Escape words so that no renderer reads them as markup."""
    text = _SPECIAL.sub(r"\\\g<0>", text)
    return _ENTITY.sub("&amp;", text).replace("<", "&lt;").replace(">", "&gt;")


def _escape_start(match: re.Match[str]) -> str:
    digits = match["digits"]
    return f"{digits}\\" if digits else f"\\{match[0]}"


def code(value: str) -> Markdown:
    """Format a name as a code span where that is safe, else as escaped text."""
    said = plain(value)
    return Markdown(f"`{said}`") if _PLAIN.fullmatch(said) else cell(value)


def verbatim(value: object) -> Markdown:
    """Return one line for a fenced block, which can neither end the block nor start a line."""
    return _missing(value, plain) if isinstance(value, Absent) else Markdown(plain(str(value)))


def _missing(value: Absent, write: Callable[[str], str]) -> Markdown:
    """Mark an absent value with its reason for `_footnotes`."""
    return Markdown(f"—\ue000{write(value.reason)}\ue001")


def written(value: str) -> Markdown:
    """Return a person's text, reduced to paragraphs, lists, emphasis and code."""
    return Markdown("\n".join(_line(line) for line in _authored_lines(value)))


def one_line(value: str) -> Markdown:
    """Return a person's text with its lines joined to one."""
    said = (_inline(line.strip()) for line in _authored_lines(value) if line.strip())
    return Markdown(" ".join(said) or "—")


def _line(line: str) -> str:
    marker = _MARKER.match(line)
    if marker is None:
        return _inline(line.strip()) if line.strip() else ""
    indent = " " * min(len(marker["indent"]) // 2 * 2, 6)
    sign = "-" if marker["bullet"] else f"{marker['number']}."
    return f"{indent}{sign} {_inline(line[marker.end() :].strip())}"


def _inline(line: str) -> str:
    """Convert text with code spans and bold words."""
    parts = _SPAN.split(line)
    spans = [code(p) if i % 2 else Markdown(_text(p, first=not i)) for i, p in enumerate(parts)]
    return _BOLD.sub(r"**\1**", "".join(spans)) or "—"


def _text(part: str, *, first: bool) -> str:
    """Escape a part of a line; only the first part can look like the start of a block."""
    inner = part.strip()
    said = str(cell(inner, limit=2 * _AUTHORED_LINE_LIMIT)) if inner else ""
    lead, tail = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
    return f"{'' if first else lead}{said}{tail if inner else ''}"


def fenced(value: str) -> Markdown:
    """Return lines in a fence that they cannot close."""
    lines = _authored_lines(value)
    fence = _fence_for(lines)
    return Markdown("\n".join([fence, *lines, fence]))


def _escaped(write: Callable[..., str]) -> Callable[..., Markdown]:
    def escaped(*values: object, **options: object) -> Markdown:
        said, first = write(*values, **options), values[0]
        if isinstance(first, Absent) and said == fmt.absent(first):
            return _missing(first, cell)
        return cell(said)

    return escaped


def _print(value: object) -> str:
    if isinstance(value, Absent):
        return _missing(value, cell)
    if isinstance(value, Status):
        return cell(fmt.status(value))
    return cell(value) if isinstance(value, str) else str(value)


@cache
def environment(templates: Path) -> Environment:
    """Return the environment of the Markdown templates below a folder; it caches templates."""
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
        made.filters[name] = _escaped(getattr(metric_text, name))
    for name in BESIDE:
        made.filters[name] = _escaped(getattr(side_by_side_text, name))
    for name in COMPARING:
        made.filters[name] = _escaped(getattr(compare_text, name))
    made.filters["differing"] = metric_text.differing
    made.filters |= {"cell": cell, "code": code, "verbatim": verbatim}
    made.filters |= {"written": written, "fenced": fenced, "line": one_line}
    made.filters["markdown"] = Markdown
    made.tests["absent"] = lambda value: isinstance(value, Absent)
    made.globals |= {
        "br": Markdown("  "),
        "missing_notes": Markdown(_NOTES),
        "bar": lambda last: Markdown(" " if last else "│"),
        "plural": lambda n, word: cell(fmt.plural(n, word)),
    }
    return made


FORMATS = (
    "text", "count", "percent", "rate", "share", "checks", "number", "ratio", "duration",
    "seconds", "size", "memory", "usd", "moment", "date", "status", "outcome", "test_outcome",
    "pairs", "version", "price", "part", "cents", "each", "refusal", "likely_cause",
)  # fmt: skip
"""Filters: the writers of `reports.format`, escaped."""

FIGURES = (
    "heading", "figure", "compared", "caption", "highlight", "check_value", "check_tolerance",
)  # fmt: skip
"""Filters: the writers of `reports.metric_text`, escaped."""


BESIDE = (
    "kind_heading", "kind_name", "note_mark", "noted", "memory_noted", "job_cell", "check_cell",
    "metric_name", "metric_cell", "exact_figure", "marked",
)  # fmt: skip
"""Filters: the writers of `reports.side_by_side_text`, escaped."""

COMPARING = (
    "category_name", "change_usd", "signed_percent", "status_or_absent", "delta_name",
    "class_cell", "test_cell", "difference", "measured_entry", "entry_name", "evidence_line",
    "counted", "stamped",
)  # fmt: skip
"""Filters: the writers of `reports.compare_text`, escaped."""


def render_markdown(
    model: ReportModel,
    template: str,
    *,
    templates: Path,
    plots: Sequence[Plot] = (),
    form: str = "md",
    alone: bool = False,
) -> str:
    """Fill a template, and settle the blank lines so that a layout never depends on the data.

    Args:
        model: The report.
        template: The name of its template.
        templates: The folder of the templates.
        plots: The plots that the text shows.
        form: ``html`` where a page is made of the text: the files beside it are pages then.
        alone: Whether no file lies beside it: it links none.
    """
    filled = environment(templates).get_template(template)
    text = filled.render(report=model, plots=plots, form=form, alone=alone)
    return re.sub(r"\n{3,}", "\n\n", _footnotes(text)).strip() + "\n"


def _footnotes(text: str) -> str:
    """Write a reason beside its dash where it is given once, and else once at the report's end."""
    many = Counter(_MISSING.findall(text))
    numbers = {reason: number for number, reason in enumerate((r for r in many if many[r] > 1), 1)}

    def mark(match: re.Match[str]) -> str:
        number = numbers.get(match[1])
        return f"—{str(number).translate(_RAISED)}" if number else f"— ({match[1]})"

    notes = "".join(f"- {str(n).translate(_RAISED)} {reason}\n" for reason, n in numbers.items())
    return _MISSING.sub(mark, text).replace(_NOTES, f"No value:\n\n{notes}" if notes else "")


def _authored_lines(text: str) -> list[str]:
    """Return visible lines up to a limit, with their indentation, and the number of others."""
    every = _AUTHORED_BREAK.split(_AUTHORED_ANSI.sub("", text).strip("\n"))
    said = [_AUTHORED_INVISIBLE.sub("\ufffd", line.expandtabs(4)).rstrip() for line in every]
    shown = [_cut_line(line) for line in said[:_AUTHORED_LINES]]
    more = len(said) - len(shown)
    return shown + ([f"… (+{more:,} lines)"] if more > 0 else [])


def _cut_line(line: str) -> str:
    more = len(line) - _AUTHORED_LINE_LIMIT
    return f"{line[:_AUTHORED_LINE_LIMIT]}… (+{more:,} characters)" if more > 0 else line


def _fence_for(lines: list[str]) -> str:
    """Return a fence that none of the lines can close."""
    longest = max((len(run) for line in lines for run in _TICKS.findall(line)), default=0)
    return "`" * max(3, longest + 1)

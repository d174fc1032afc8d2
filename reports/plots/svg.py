"""A small writer of SVG: text that cannot break out, and coordinates that never depend on luck."""

from __future__ import annotations

import html
from collections.abc import Iterable

from reports.markdown import plain
from reports.model.blocks import Plot

WIDTH = 720
LABEL_WIDTH = 200
VALUE_WIDTH = 150
LEFT, RIGHT = LABEL_WIDTH, WIDTH - VALUE_WIDTH
"""Bounds of the drawing area, between names and figures."""
ROW = 26
BAR = 16
TOP = 44
LABEL_LIMIT = 27
"""Maximum characters of a label; the tables have the whole name."""

STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#424a53}
.title{font-weight:600;font-size:14px;fill:#1f2328}.note{font-size:11px;fill:#59636e}
.in{fill:#fff;font-size:11px;font-weight:600}.grid{stroke:#d1d9e0}.whisker{stroke:#1f2328}
.passed{fill:#1a7f37}.failed{fill:#cf222e}.error{fill:#bc4c00}.skipped{fill:#818b98}
.missing{fill:#bf3989}.other{fill:#59636e}
.s0{fill:#0969da}.s1{fill:#8250df}.s2{fill:#1b7c83}.s3{fill:#9a6700}.s4{fill:#bf3989}.s5{fill:#57606a}
.dot{fill:#0969da;fill-opacity:.45}.median{stroke:#1f2328;stroke-width:2}.axis{stroke:#59636e}
@media(prefers-color-scheme:dark){text{fill:#c2cad3}.title{fill:#f0f6fc}.note{fill:#9198a1}
.grid{stroke:#3d444d}.whisker{stroke:#f0f6fc}.in{fill:#fff}.dot{fill:#4493f8;fill-opacity:.6}
.median{stroke:#f0f6fc}.axis{stroke:#9198a1}.failed{fill:#da3633}.other{fill:#768390}}
""".replace("\n", "")
"""Colours with enough contrast in both schemes; an outcome also has its word."""


def figure(name: str, title: str, shown_text: str, body: Iterable[str], *, height: int) -> Plot:
    """Assemble the parts of a figure."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" '
        f'role="img"><title>{escaped_line(title)}</title><desc>{escaped_line(shown_text)}</desc>'
        f"<style>{STYLE}</style>"
    )
    top = text(12, 22, title, kind="title", limit=90)
    return Plot(name, title, shown_text, "\n".join([head, top, *body, "</svg>"]) + "\n")


def escaped_line(value: str, *, limit: int = 300) -> str:
    """Return one visible line of text, escaped and cut in the middle."""
    line = plain(value)
    if len(line) > limit:
        head = limit * 3 // 5
        line = f"{line[:head].rstrip()}…{line[head + 1 - limit :].lstrip()}"
    return html.escape(line, quote=True)


def text(
    x: float, y: float, value: str, *, kind: str = "", anchor: str = "", limit: int = 60
) -> str:
    """Draw a line of text with its baseline at `y`."""
    of_kind = f' class="{kind}"' if kind else ""
    placed = f' text-anchor="{anchor}"' if anchor else ""
    return (
        f'<text x="{at(x)}" y="{at(y)}"{of_kind}{placed}>{escaped_line(value, limit=limit)}</text>'
    )


def rect(x: float, y: float, width: float, kind: str, *, text: str = "") -> str:
    """Return a bar; `text` is its tooltip."""
    shape = f'<rect x="{at(x)}" y="{at(y)}" width="{at(width)}" height="{BAR}" class="{kind}"'
    return f"{shape}><title>{escaped_line(text)}</title></rect>" if text else f"{shape}/>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Draw a line."""
    return f'<line x1="{at(x1)}" y1="{at(y1)}" x2="{at(x2)}" y2="{at(y2)}" class="{kind}"/>'


def dot(x: float, y: float) -> str:
    """Draw the dot of a sample."""
    return f'<circle cx="{at(x)}" cy="{at(y)}" r="3" class="dot"/>'


def mark(x: float, y: float, kind: str) -> str:
    """Draw the mark of a value."""
    return f'<circle cx="{at(x)}" cy="{at(y)}" r="5" class="{kind}"/>'


def label(y: float, value: str) -> str:
    """Draw a row's name, left of the plot."""
    return text(LEFT - 10, y + 12, value, anchor="end", limit=LABEL_LIMIT)


def value(y: float, shown_text: str) -> str:
    """Draw a row's value, right of the plot."""
    return text(RIGHT + 10, y + 12, shown_text, limit=22)


def legend(y: float, entries: Iterable[tuple[str, str]]) -> tuple[list[str], float]:
    """Draw a legend of (class, word); also return the position of its last line."""
    parts, x = [], float(LEFT)
    for kind, word in entries:
        if x > LEFT and x + 14 + 6.2 * len(word) > WIDTH:
            x, y = float(LEFT), y + 18
        parts.append(f'<rect x="{at(x)}" y="{at(y)}" width="10" height="10" class="{kind}"/>')
        parts.append(text(x + 14, y + 9, word, kind="note"))
        x += 30 + 6.2 * len(word)
    return parts, y


def at(number: float) -> str:
    """Format a coordinate with at most one decimal, equal on every machine."""
    return f"{round(number, 1):g}"

"""Reading the tables of a Markdown document back, the way that a renderer does."""

from __future__ import annotations

from markdown_it import MarkdownIt


def split(line: str) -> list[str]:
    """Cells of one line: an escaped bar does not end a cell."""
    cells, cell, escaped = [], "", False
    for char in line.strip().removeprefix("|").removesuffix("|"):
        if char == "|" and not escaped:
            cells.append(cell.strip())
            cell = ""
        else:
            cell += char
        escaped = char == "\\" and not escaped
    return [*cells, cell.strip()]


def tables(text: str) -> list[list[list[str]]]:
    """Every table outside fenced blocks: rows of cells, without the line below the head."""
    found: list[list[list[str]]] = []
    inside = fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        is_row = line.startswith("|") and not fenced
        if is_row and not inside:
            found.append([])
        if is_row and not set(line) <= set("|-: "):
            found[-1].append(split(line))
        inside = is_row
    return found


def rendered_rows(text: str) -> list[int]:
    """How many cells each row has, by the parser that makes the pages."""
    counts, cells = [], 0
    for token in MarkdownIt("commonmark", {"html": False}).enable("table").parse(text):
        cells += token.type in ("th_open", "td_open")
        if token.type == "tr_close":
            counts.append(cells)
            cells = 0
    return counts

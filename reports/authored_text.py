"""Markdown of untrusted authors, restricted to paragraphs, lists, emphasis and code.

Its author is not trusted with more: no heading, link, image, table, tag or fence of theirs is one.
"""

from __future__ import annotations

import re

LINES_SHOWN = 200
LINE_LIMIT = 2_000
"""Maximum characters of one line."""

MARKER = re.compile(r"^(?P<indent>[ \t]*)(?:(?P<bullet>[-*+])|(?P<number>\d{1,3})[.)])[ \t]+")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
BOLD = re.compile(r"(?<!\\)\\\*\\\*(?=\S)((?:(?!\\\*).)+?)(?<=\S)\\\*\\\*")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?")
_TICKS = re.compile(r"`+")
_BREAK = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def lines_of(text: str) -> list[str]:
    """Return visible lines up to a limit, with their indentation, and the number of others."""
    every = _BREAK.split(_ANSI.sub("", text).strip("\n"))
    said = [_INVISIBLE.sub("\ufffd", line.expandtabs(4)).rstrip() for line in every]
    shown = [_cut(line) for line in said[:LINES_SHOWN]]
    more = len(said) - len(shown)
    return shown + ([f"… (+{more:,} lines)"] if more > 0 else [])


def _cut(line: str) -> str:
    more = len(line) - LINE_LIMIT
    return f"{line[:LINE_LIMIT]}… (+{more:,} characters)" if more > 0 else line


def fence_for(lines: list[str]) -> str:
    """Return a fence that none of the lines can close."""
    longest = max((len(run) for line in lines for run in _TICKS.findall(line)), default=0)
    return "`" * max(3, longest + 1)

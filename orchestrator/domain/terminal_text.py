"""Text of terminal output: the characters of a line with their styles.

Colours and weights are kept as words. Carriage returns, backspaces and erase sequences are applied,
so that only the last state of a progress bar remains. All other control sequences (which move the
cursor, set titles, open links, write to the clipboard or hide text) are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_SEQUENCE = (
    r"\x1b\[([0-?]*)([ -/]*)([@-~])"  # CSI: colours, erasing, moving
    r"|\x1b[\]PX^_][^\n]*?(?:\x07|\x1b\\|(?![^\n]))"  # OSC, DCS and other strings
    r"|\x1b[ -/]*[0-~]"
)
_ESCAPE = re.compile(_SEQUENCE + r"|[\r\b]")
_DROPPED = re.compile(_SEQUENCE)
_PLAIN = re.compile(r"[^\x1b\r\b]*")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_MARKS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck"}
_ENDS = {21: ("bold",), 22: ("bold", "dim"), 23: ("italic",), 24: ("underline",)}
_ENDS |= {27: ("inverse",), 29: ("struck",)}
_EXTENDED = (38, 48)
_ERASERS = ("", "0", "2")
"""Parameters of sequences that erase the rest of the line or the whole line."""
_GREY = 40
"""Colours whose channels differ by less than this are grey."""


@dataclass(frozen=True, slots=True)
class StyledText:
    """Characters with the same style."""

    text: str
    style: str = ""
    """Style words such as ``red``, ``on-blue`` and ``bold``; empty for plain text."""


def styled_texts(line: str) -> list[StyledText]:
    """Return the parts of a line by style, as a terminal would show them."""
    line = line.rstrip("\r")
    if _PLAIN.fullmatch(line):
        return [StyledText(line)] if line else []
    screen = _Screen()
    at = 0
    for found in _ESCAPE.finditer(line):
        screen.write(line[at : found.start()])
        screen.obey(found)
        at = found.end()
    screen.write(line[at:])
    return screen.shown()


def plain(text: str) -> str:
    """Return the text, of one or more lines, without control sequences."""
    return _DROPPED.sub("", text) if "\x1b" in text else text


class _Screen:
    """One row of a terminal, of any length.

    It is updated character by character, so that no output of a machine can make it slow.
    """

    def __init__(self) -> None:
        self._characters: list[str] = []
        self._styles: list[str] = []
        self._column = 0
        self._foreground = ""
        self._background = ""
        self._marks: dict[str, None] = {}
        self._style = ""

    def write(self, text: str) -> None:
        """Write text at the cursor, and move the cursor."""
        after = self._column + len(text)
        self._characters[self._column : after] = text
        self._styles[self._column : after] = [self._style] * len(text)
        self._column = after

    def obey(self, match: re.Match[str]) -> None:
        """Apply a control sequence, if it changes the row."""
        if match[0] == "\r":
            self._column = 0
        elif match[0] == "\b":
            self._column = max(0, self._column - 1)
        elif match[3] == "m" and not match[2]:
            self._set(match[1])
        elif match[3] == "K" and match[1] in _ERASERS:
            self._column = self._column if match[1] in ("", "0") else 0
            del self._characters[self._column :], self._styles[self._column :]

    def shown(self) -> list[StyledText]:
        """Return the row; neighbouring characters of one style are joined."""
        found, at = [], 0
        for style, alike in groupby(self._styles):
            end = at + sum(1 for _ in alike)
            found.append(StyledText("".join(self._characters[at:end]), style))
            at = end
        return found

    def _set(self, codes: str) -> None:
        numbers = iter(_numbers(codes))
        for code in numbers:
            if code in _EXTENDED:
                self._colour(code, _extended(numbers))
            elif code == 0:
                self._foreground = self._background = ""
                self._marks.clear()
            elif code in _MARKS:
                self._marks[_MARKS[code]] = None
            elif code in _ENDS:
                for mark in _ENDS[code]:
                    self._marks.pop(mark, None)
            else:
                self._colour(*_named(code))
        words = (self._foreground, self._background, *self._marks)
        self._style = " ".join(word for word in words if word)

    def _colour(self, code: int, colour: str | None) -> None:
        if colour is None:
            return
        if code == _EXTENDED[0]:
            self._foreground = colour
        else:
            self._background = f"on-{colour}" if colour else ""


def _numbers(codes: str) -> Sequence[int]:
    """Return the numbers of a sequence; invalid numbers are 0. `38:5;n` is the same as `38;5;n`."""
    words = codes.replace(":", ";").split(";")
    return [int(word) if word.isdecimal() and len(word) < 6 else 0 for word in words]


def _named(code: int) -> tuple[int, str | None]:
    """Return (38 for the foreground or 48 for the background, colour) of a 16-colour code.

    The colour is empty for the default colour. (0, None) for an unknown code.
    """
    for begin, which in ((30, 38), (90, 38), (40, 48), (100, 48)):
        if begin <= code < begin + len(_COLOURS):
            is_grey = begin in (90, 100) and code == begin
            return which, "grey" if is_grey else _COLOURS[code - begin]
    if code in (39, 49):
        return code - 1, ""
    return 0, None


def _extended(numbers: Iterator[int]) -> str | None:
    """Return the nearest named colour of a 256-colour or RGB code; None if it is unknown."""
    kind = next(numbers, 0)
    if kind == 5:
        return _of_palette(next(numbers, 0))
    if kind == 2:
        red, green, blue = (next(numbers, 0) for _ in range(3))
        return _nearest(red, green, blue)
    return None


def _of_palette(number: int) -> str:
    if number < 16:
        return "grey" if number == 8 else _COLOURS[number % 8]
    if number >= 232:
        level = 8 + 10 * (min(number, 255) - 232)
        return _nearest(level, level, level)
    number -= 16
    return _nearest(*(51 * (number // power % 6) for power in (36, 6, 1)))


def _nearest(red: int, green: int, blue: int) -> str:
    top, low = max(red, green, blue), min(red, green, blue)
    if top - low < _GREY:
        return "black" if top < 64 else "grey" if top < 176 else "white"
    middle = (top + low) / 2
    bits = (red > middle) | (green > middle) << 1 | (blue > middle) << 2
    return _COLOURS[bits]

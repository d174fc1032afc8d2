"""What is left of a line once a terminal has shown it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.terminal_text import StyledText, plain, styled_texts


def shown(line: str) -> str:
    return "".join(part.text for part in styled_texts(line))


def test_a_plain_line_is_one_stretch():
    assert styled_texts("collected 7 items") == [StyledText("collected 7 items")]
    assert styled_texts("") == []
    assert styled_texts("text\r") == [StyledText("text")]


@pytest.mark.parametrize(
    ("codes", "style"),
    [
        ("31", "red"), ("1;31", "red bold"), ("91", "red"), ("90", "grey"),
        ("41;97", "white on-red"), ("38;5;9", "red"), ("38;5;244", "grey"), ("38;5;202", "red"),
        ("48;5;21", "on-blue"), ("38;2;20;200;30", "green"), ("38:2:20:200:30", "green"),
        ("38;5", "black"), ("31;39", ""), ("41;49", ""), ("1;2;22", ""), ("1;3;4;7;9;0", ""),
        ("4;24", ""), ("8", ""), ("5", ""), ("1000000000000", ""),
    ],
)  # fmt: skip
def test_colours_and_weights_are_words(codes, style):
    assert styled_texts(f"\x1b[{codes}mX") == [StyledText("X", style)]


def test_a_style_holds_until_it_ends():
    found = styled_texts("a \x1b[32mPASSED\x1b[0m [\x1b[1m3\x1b[m]")
    assert found == [
        StyledText("a "),
        StyledText("PASSED", "green"),
        StyledText(" ["),
        StyledText("3", "bold"),
        StyledText("]"),
    ]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("10%\r20%\r100%", "100%"),
        ("abcdef\rXY", "XYcdef"),
        ("long line\r\x1b[Kshort", "short"),
        ("long line\x1b[2K\rshort", "short"),
        ("abc\b\bX", "aXc"),
        ("\b\babc", "abc"),
        ("abc\x1b[1Kd", "abcd"),
        ("50%\r\x1b[32m60%\x1b[0m\r\n".rstrip("\n"), "60%"),
    ],
)
def test_what_is_written_over_is_gone(line, left):
    assert shown(line) == left


@pytest.mark.parametrize(
    "told",
    [
        "\x1b]0;title\x07", "\x1b]8;;http://elsewhere\x1b\\", "\x1b]52;c;aGFja2Vk\x07", "\x1b[2J",
        "\x1b[10;10H", "\x1b[?25l", "\x1b(B", "\x1bM", "\x1bP1$r\x1b\\", "\x1b[>4;1m", "\x1b[1 q",
    ],
)  # fmt: skip
def test_everything_else_is_dropped(told):
    assert shown(f"a{told}b") == "ab"
    assert plain(f"a{told}b\nc") == "ab\nc"


def test_a_title_without_an_end_hides_the_rest_of_its_line_alone():
    lines = ["a\x1b]0;title", "b\x1bPnext", "c"]
    assert [shown(line) for line in lines] == ["a", "b", "c"]
    assert plain("\n".join(lines)) == "a\nb\nc"


def test_hidden_text_is_shown():
    assert shown("\x1b[8msecret\x1b[0m") == "secret"


def test_wild_lines_are_quick():
    wild = "\x1b[1ma\x1b[2mb" * 800 + "\rX" * 4_000 + "\x1b[2K" * 2_000
    assert shown(wild) == ""


@given(st.text(st.sampled_from("ab\x1b[];mK0123478\r\b\\\x07é\U0001f600"), max_size=60))
def test_nothing_makes_it_fail_and_no_return_is_left(line):
    parts = styled_texts(line)
    assert not {"\r", "\b"} & set("".join(part.text for part in parts))
    assert all(one.style != other.style for one, other in pairwise(parts))
    assert all(part.text for part in parts)

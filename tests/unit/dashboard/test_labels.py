"""Texts of pages: sentences of ours are cut at words, and their commands are code."""

from __future__ import annotations

import pytest

from orchestrator.dashboard.labels import prose, shortened


@pytest.mark.parametrize(
    ("sentence", "longest", "short"),
    [
        ("It is short.", 12, "It is short."),
        ("A word is never broken in two", 20, "A word is never…"),
        ("It ends, and then more", 9, "It ends…"),
        ("Approve it: `seatrial gate approve release`, then more", 30, "Approve it…"),
        ("One test failed (t.py::a, t.py::b and others)", 30, "One test failed…"),
        ("x" * 30, 10, "x" * 9 + "…"),
    ],
)
def test_a_long_sentence_is_cut_at_a_word_and_not_in_a_command(sentence, longest, short):
    assert shortened(sentence, longest) == short
    assert len(short) <= longest


def test_a_command_in_a_sentence_is_code_and_markup_in_it_is_text():
    assert "See <code>seatrial show &lt;b&gt;</code>." in prose("See `seatrial show <b>`.")
    assert "a ` b" in prose("a ` b")
    assert "<b>" not in prose("<b>`<b>`")

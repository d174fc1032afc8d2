"""Texts of pages: sentences of ours are cut at words, and their commands are code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.dashboard import table
from orchestrator.dashboard.labels import prose, shortened
from orchestrator.domain.outcome import Counts


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


def test_a_pass_rate_is_of_the_tests_that_ran_where_others_did_not():
    whole = table.TestCounts(Counts(passed=5, skipped=2))
    missing, not_run = (table.TestCounts(Counts(passed=5, **{word: 3})) for word in _UNRUN)
    assert whole.text() == "100% (5 of 5; 2 skipped)"
    assert missing.text() == "100% (5 of 5 that ran; 3 missing)"
    assert not_run.text() == "100% (5 of 5 that ran; 3 not run)"
    assert replace(whole, is_partial=True).text() == "100% (5 of 5 that ran; 2 skipped)"


_UNRUN = ("missing", "not_run")

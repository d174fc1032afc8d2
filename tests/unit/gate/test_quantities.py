"""Patterns: what fits them, and how long that takes to tell."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.gate.policy import like


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("", "", True), ("", "a", False), ("*", "", True), ("*", "a\nb", True),
        ("a*b", "ab", True), ("a*b", "axb", True), ("a*b", "a", False), ("ab*b", "ab", False),
        ("*ab*ab", "ab", False), ("*ab*ab", "abab", True), ("a**b", "a-b", True),
        ("test[x]", "test[x]", True), ("a.c", "abc", False), ("moe/*", "moe/tokens_per_s", True),
    ],
)  # fmt: skip
def test_a_star_stands_for_anything_and_all_else_for_itself(
    pattern: str, name: str, fits: bool
) -> None:
    assert like(pattern, name) is fits


@given(st.text("ab*", max_size=12), st.text("ab", max_size=20))
def test_it_is_what_shells_do(pattern: str, name: str) -> None:
    assert like(pattern, name) is fnmatchcase(name, pattern)


def test_no_pattern_makes_a_name_slow() -> None:
    assert not like("*a" * 200 + "*b", "a" * 2_000)

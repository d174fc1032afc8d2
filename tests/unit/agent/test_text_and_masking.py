"""Text that goes into evidence: bounded, storable, and without secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.agent.evidence_text import Masker, cap, clean, last_lines


@given(st.text(), st.integers(min_value=64, max_value=2_000))
def test_cap_never_passes_the_limit(text: str, limit: int) -> None:
    capped = cap(text * 7, limit)
    assert len(capped.encode("utf-8", "replace")) <= limit
    if len((text * 7).encode("utf-8", "replace")) <= limit:
        assert capped == text * 7


def test_cap_keeps_both_ends_and_says_how_much_is_gone() -> None:
    capped = cap("A" * 1_000 + "Z" * 1_000, 300)
    assert capped.startswith("AAA")
    assert capped.endswith("ZZZ")
    kept = capped.count("A") + capped.count("Z")
    assert f"[... {2_000 - kept} bytes left out ...]" in capped


@given(st.text(st.characters(codec=None)))
def test_clean_is_storable(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert json.loads(json.dumps(cleaned, ensure_ascii=False).encode("utf-8")) == cleaned


def test_last_lines_begin_at_a_line() -> None:
    assert last_lines(b"first line\nsecond\nthird\n", 15) == "second\nthird\n"
    assert last_lines(b"short", 15) == "short"
    assert last_lines(b"\xff\xfe broken", 100) == "\ufffd\ufffd broken"


@given(st.data())
def test_a_secret_never_shows_however_the_stream_is_cut(data: st.DataObject) -> None:
    secret = data.draw(st.text("ab*", min_size=4, max_size=8))
    parts = data.draw(st.lists(st.sampled_from(["x", "a", "b", secret, secret[:3]]), max_size=20))
    raw = "".join(parts).encode()
    stream = Masker([secret]).stream()
    shown = b""
    at = 0
    while at < len(raw):
        size = data.draw(st.integers(min_value=1, max_value=7))
        shown += stream.feed(raw[at : at + size])
        at += size
    shown += stream.finish()
    if "*" not in secret:
        assert secret.encode() not in shown
    if secret.encode() not in raw:
        assert shown == raw


def test_all_forms_of_a_secret_are_masked() -> None:
    secret = 'a"b\\c/d é'
    masker = Masker([secret])
    for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], "a%22b%5Cc%2Fd%20%C3%A9"):
        assert masker.text(f"<{form}>") == "<***>"
    assert masker.data({"k": [secret, {secret: 1}]}) == {"k": ["***", {"***": 1}]}


def test_lines_of_a_key_are_masked_one_by_one() -> None:
    masker = Masker(["-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----"])
    assert masker.text("log: MIIEvQIBADANBgkq") == "log: ***"


@pytest.mark.parametrize("secrets", [[], ["abc"], [""]])
def test_what_is_no_secret_passes_untouched(secrets: list[str]) -> None:
    stream = Masker(secrets).stream()
    assert stream.feed(b"abc \x00\xff") + stream.finish() == b"abc \x00\xff"

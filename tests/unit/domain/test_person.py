"""Names of people: which are one person's, and which nobody may have."""

from __future__ import annotations

import pytest

from orchestrator.domain.caller_identity import name_fault, person_key, shown_name

DOTLESS, DOTTED = "\N{LATIN SMALL LETTER DOTLESS I}", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("me", "ME"),
        ("me", "  me "),
        ("ann lee", "ann \t\n  lee"),
        ("ann lee", "ann\N{NO-BREAK SPACE}lee"),
        ("ann lee", "ann\N{BRAILLE PATTERN BLANK}lee"),
        ("me", "m\N{ZERO WIDTH SPACE}e"),
        ("me", "me\N{ZERO WIDTH JOINER}\N{WORD JOINER}\N{SOFT HYPHEN}"),
        ("me", "\N{RIGHT-TO-LEFT OVERRIDE}me\N{POP DIRECTIONAL FORMATTING}"),
        ("me", "\N{LEFT-TO-RIGHT ISOLATE}me\N{POP DIRECTIONAL ISOLATE}"),
        ("me", "m\N{COMBINING GRAPHEME JOINER}e\N{HANGUL FILLER}\N{VARIATION SELECTOR-16}"),
        ("me", "me\U000e0061"),  # a tag character
        ("me", "me\x00\x1b"),
        ("me", "\N{FULLWIDTH LATIN SMALL LETTER M}\N{FULLWIDTH LATIN SMALL LETTER E}"),
        ("me", "\N{MATHEMATICAL BOLD SMALL M}\N{SCRIPT SMALL E}"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}va", "e\N{COMBINING ACUTE ACCENT}va"),
        ("fi", "\N{LATIN SMALL LIGATURE FI}"),
        ("strasse", "stra\N{LATIN SMALL LETTER SHARP S}e"),
        # Turkish: one letter, with or without its dot.
        (f"ay{DOTLESS}n", "AYIN"),
        (f"{DOTTED}pek", "ipek"),
        (f"{DOTLESS}pek", f"{DOTTED}PEK"),
    ],
)
def test_names_of_one_person(one: str, other: str):
    assert person_key(one) == person_key(other)
    assert person_key(person_key(other)) == person_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ann", "anna"),
        ("eva", "\N{LATIN SMALL LETTER E WITH ACUTE}va"),
        ("ann lee", "annlee"),
        ("ann-lee", "ann lee"),
    ],
)
def test_names_of_two_people(one: str, other: str):
    assert person_key(one) != person_key(other)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("\N{CYRILLIC SMALL LETTER A}nn", "Cyrillic \N{CYRILLIC SMALL LETTER A} (U+0430); Latin n"),
        ("b\N{GREEK SMALL LETTER OMICRON}b", "Greek \N{GREEK SMALL LETTER OMICRON} (U+03BF)"),
        ("b\N{ARMENIAN SMALL LETTER OH}b", "Armenian"),
        ("\N{CHEROKEE LETTER A}nn", "Cherokee"),
        ("\N{MICRO SIGN}mega", "Greek"),  # NFKC makes a Greek letter of it
        ("", "a letter or a digit"),
        (" \N{ZERO WIDTH SPACE}\N{HANGUL FILLER}", "a letter or a digit"),
        ("...", "a letter or a digit"),
        ("n" * 201, "at most 200"),
    ],
)
def test_a_name_that_nobody_may_have(name: str, says: str):
    assert says in name_fault(name)


@pytest.mark.parametrize(
    "name",
    [
        "ann",
        "Ann O'Neil-Smith 2",
        "ci@example.org",
        "J\N{LATIN SMALL LETTER U WITH DIAERESIS}rgen",
        "\N{CYRILLIC SMALL LETTER A}\N{CYRILLIC SMALL LETTER EN}",
        "\N{CJK UNIFIED IDEOGRAPH-5C71}\N{HIRAGANA LETTER A}\N{KATAKANA LETTER A} Ken",
        "\N{HANGUL SYLLABLE GIM} Kim",
        "7",
    ],
)
def test_a_name_that_somebody_may_have(name: str):
    assert name_fault(name) == ""


def test_a_name_is_kept_as_it_is_seen():
    assert (
        shown_name(" Ann\N{ZERO WIDTH SPACE} \N{FULLWIDTH LATIN CAPITAL LETTER L}ee ") == "Ann Lee"
    )

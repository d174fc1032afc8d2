"""Rules on strong claims, against the document's own figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reports.document_lint.document import Document, DocumentRule, Line, Mark, MarkdownRow
from reports.document_lint.parsing import Fraction, fractions, percents
from reports.document_lint.rules.denominators import platform_table
from reports.document_lint.rules.statuses import worse

_ABSOLUTE = re.compile(r"(?i)\b(all|every|fully|100\s?%|perfect(?:ly)?|completely|entire)(?!\w)")
_SUCCESS = re.compile(
    r"(?i)pass|work|function|valid|support|complet|succe|correct|cover|ready|across|compatib|fix"
)
_READY = re.compile(r"(?i)production[ -]ready|suitable for (?:production|most)|ready for v?\d")
_EXPECTED = re.compile(r"(?i)\bexpect(?:ed|ations?)\b|\bstrong results\b|\bas intended\b")
_DISMISSED = re.compile(
    r"(?i)\bminor\b|\bedge.case|does not affect|no impact|not a (?:real )?problem|cosmetic"
)
_COUNTED = re.compile(r"(?i)\ball (\d[\d,]*) (?:\w+ )?(tests?|demonstrations?|demos?|benchmarks?)")
_OWN_WORDS = re.compile(
    r"(?i)\btotal|platforms? together|judged|whole output|the sum of|none of|\bnot all\b|by the "
    r"vendor|every installed|because every job ran to its end and passed|same in every row|"
    r"^\W*(?:problem|fix|before|after)\b|passed = passed / "
)


def check_claims(document: Document) -> Iterator[Mark]:
    """Check absolute words against the document's figures."""
    falls_short = [why for _, why in worse(document)]
    for text in document.texts:
        said = _ABSOLUTE.search(text.text) and _SUCCESS.search(text.text)
        if not said or _OWN_WORDS.search(text.text):
            continue
        if re.match(r"(?i)\**status", text.text):
            continue
        yield from _claim(document, text, falls_short)


def _claim(document: Document, text: Line, falls_short: Sequence[str]) -> Iterator[Mark]:
    against = _against(text.text, falls_short)
    if against and not _is_backed(document, text):
        message = f"{text.text[:120]!r}: the document itself says {against[:120]!r}"
        yield Mark("error", text.number, message)
    elif not _is_backed(document, text):
        message = f"{text.text[:120]!r}: no figure of the document is about all of that"
        yield Mark("warning", text.number, message)


def _against(claim: str, falls_short: Sequence[str]) -> str:
    """Return the figures that contradict the claim."""
    if re.search(r"(?i)all (?:major )?(?:platforms|backends)|across all", claim):
        worse = [why for why in falls_short if re.search(r"(?i)not available|N/A", why)]
        return next(iter(worse), next(iter(falls_short), ""))
    names = set(re.findall(r"[A-Z][A-Za-z]*\d*[A-Z]\w*", claim))
    shared = (why for why in falls_short if names & set(re.findall(r"\w+", why.split(" | ")[0])))
    return next(shared, "")


def _is_backed(document: Document, text: Line) -> bool:
    """Whether a full count in a table backs the sentence."""
    if "across all" in text.text.lower():
        return False
    counts = [int(n.replace(",", "")) for n, _ in _COUNTED.findall(text.text)]
    whole = {
        share.whole
        for table in document.tables
        for row in table.rows
        for share in _all_shares(table.header, row)
        if share.part == share.whole
    }
    if counts:
        return all(n in whole for n in counts)
    has_percent = any(p.value == 100 for p in percents(text.text))
    stated = list(fractions(text.text))
    if has_percent and stated:
        return True
    return has_percent and _backed_row(document, text)


def _backed_row(document: Document, text: Line) -> bool:
    words = set(re.findall(r"[A-Z]\w+", text.text))
    for table in document.tables:
        for row in table.body:
            full = [s for s in _all_shares(table.header, row) if s.part == s.whole]
            if full and words & set(re.findall(r"\w+", row.label)):
                return True
    return False


def _all_shares(header: Sequence[str], row: MarkdownRow) -> list[Fraction]:
    cells = dict(zip((name.lower() for name in header), row.cells, strict=False))
    passed, total = cells.get("passed", ""), cells.get("total", "")
    if passed.isdigit() and total.isdigit():
        return [Fraction(int(passed), int(total))]
    return [share for cell in row.cells for share in fractions(cell)]


def check_ready(document: Document) -> Iterator[Mark]:
    """Find claims of readiness, which only a gate decides."""
    if re.search(r"(?i)\bgate\b|\bpolicy\b", document.words):
        return
    for line in document.everything:
        found = _READY.search(line.text)
        if found:
            message = f"{found[0]!r} is a release decision, and no policy or verdict is named"
            yield Mark("warning", line.number, message)


def check_expected(document: Document) -> Iterator[Mark]:
    """Find met expectations that are stated nowhere."""
    for text in document.texts:
        found = _EXPECTED.search(text.text)
        if found and not re.search(r"(?i)expected (?:of|to be|value|≥|>=|[\d$])", text.text):
            message = f"{found[0]!r}: what was expected is stated nowhere"
            yield Mark("warning", text.number, message)


def check_dismissed(document: Document) -> Iterator[Mark]:
    """Find failures that are called harmless without their message."""
    for text in document.texts:
        found = _DISMISSED.search(text.text)
        quoted = re.search(r"Error\b|Exception\b|assert", text.text)
        if found and not quoted:
            message = f"{found[0]!r} judges a failure, and shows none of its messages"
            yield Mark("warning", text.number, message)


_FEATURE = re.compile(r"\b(?=\w{0,40}[A-Z]\w{0,40}[A-Z0-9])[A-Z]\w{1,60}\b")
_WHERE = re.compile(r"\b(GPU|TPU|CPU|AMD|NVIDIA|A10G|L4|MI300X|H100)\b")


def check_scope(document: Document) -> Iterator[Mark]:
    """Find features claimed on a platform without any result for them."""
    if platform_table(document) is None:
        return
    for text in document.texts:
        ahead, _, after = text.text.partition(" on ")
        features = [name for name in _FEATURE.findall(ahead) if not _WHERE.fullmatch(name)]
        if not features or not re.search(r"\b(?:fully|all|All)\b", ahead):
            continue
        feature, places = features[0], _WHERE.findall(after)
        for place in places:
            about = [line for line in document.everything if _is_about(line, place, text)]
            if about and not any(re.search(rf"\b{feature}\b", line.text) for line in about):
                message = (
                    f"{feature} is claimed on {place}: nothing that the document says of "
                    f"{place} is about {feature}"
                )
                yield Mark("error", text.number, message)


def _is_about(line: Line, place: str, claim: Line) -> bool:
    under = " ".join(line.path[1:])
    return line.number != claim.number and bool(
        re.search(rf"\b{place}\b", under) or re.search(rf"\b{place}\b", line.text)
    )


RULES = (
    DocumentRule("claim", "all, every, fully, 100% ... without a figure for it",
         "Say the figure, or leave the word out.", check_claims),
    DocumentRule("claim-scope", "a feature claimed where nothing was measured",
         "Name the test, or leave the platform out.", check_scope),
    DocumentRule("readiness", "a release decision in a report of results",
         "Let a gate with a policy decide, and quote its verdict.", check_ready),
    DocumentRule("expectation", "expectations that are met and not stated",
         "State what was expected, and by whom.", check_expected),
    DocumentRule("dismissal", "a failure that is called harmless",
         "Quote the failure, and leave the judgement to who reads it.", check_dismissed),
)  # fmt: skip

"""What single lines of pytest's terminal output mean. Every function is linear in the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.domain.outcome import TestOutcome

OUTCOMES = {
    "PASSED": TestOutcome.PASSED,
    "FAILED": TestOutcome.FAILED,
    "ERROR": TestOutcome.ERROR,
    "SKIPPED": TestOutcome.SKIPPED,
    "XFAIL": TestOutcome.XFAILED,
    "XPASS": TestOutcome.XPASSED,
}
RERUN = "RERUN"
SUBTESTS = {
    "SUBPASSED": TestOutcome.PASSED,
    "SUBPASS": TestOutcome.PASSED,
    "SUBFAILED": TestOutcome.FAILED,
    "SUBFAIL": TestOutcome.FAILED,
    "SUBSKIPPED": TestOutcome.SKIPPED,
    "SUBSKIP": TestOutcome.SKIPPED,
    "SUBXFAIL": TestOutcome.XFAILED,
}
"""Words of subtests: of pytest itself and of the older plug-in."""
LETTERS = {
    ".": TestOutcome.PASSED,
    "F": TestOutcome.FAILED,
    "E": TestOutcome.ERROR,
    "s": TestOutcome.SKIPPED,
    "x": TestOutcome.XFAILED,
    "X": TestOutcome.XPASSED,
}
"""What a test looks like without ``-v``; other letters are reruns and subtests."""

_PLAIN = frozenset({*OUTCOMES, RERUN})
_WORDS = "|".join((*OUTCOMES, RERUN))
_SUBWORDS = "|".join(SUBTESTS)
_MARK = re.compile(
    r"(?:\[ {0,3}\d{1,4}%\]|\[ {0,8}\d{1,9}/\d{1,9}\]|(\d{1,6}\.\d{1,3})(us|ms|s|m|h))$"
)
_MARK_LENGTH = 24
_SCALES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_REASONED = re.compile(rf" ({_WORDS}) \(")
_SUB = re.compile(rf" ({_SUBWORDS})(?=[\[( ]|$)")
_ALONE = re.compile(rf"({_WORDS})(?: \((.*)\))?|({_SUBWORDS})(?:[\[( ].*)?")
_LAST_WORD = re.compile(rf"(?:{_WORDS})$")
_FIRST_WORD = re.compile(rf"(?:{_WORDS})")
_WORKER = re.compile(
    r"\[(gw\d{1,5})\](?: \[ {0,3}\d{1,4}%\]| \[ {0,8}\d{1,9}/\d{1,9}\]| {1,40}\d\S{0,12})?"
    rf" (?:({_WORDS}) |({_SUBWORDS})(?=[\[( ]))"
)
_ROOTLESS = re.compile(r"::[A-Za-z_]\w{0,200}(?:::|\[| |$)")
"""A node id of a file outside of pytest's root folder has no path."""
_LETTERED = re.compile(r"(?:(\S+) )?([.FEsxXRuy,-]+)")
_GLUED_ROW = re.compile(r"([.FEsxXRuy,-]+) {1,200}\[ {0,3}\d{1,3}%\](?=\S)")
_TRIES = 8
"""How many places of a word on a line are looked at."""

_FOOTER_LIMIT = 400
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:s| seconds)(?: \([^()]*\))?")
_PART = re.compile(r"(\d{1,9}) ([a-z][a-z ]{0,40})")
_GATHERED = re.compile(r"(?:(\d{1,9})/)?(\d{1,9}|no) tests? collected(?: \([^()]*\))?")
_COUNTED = {
    "passed": "passed", "failed": "failed", "error": "error", "errors": "error",
    "skipped": "skipped", "xfailed": "xfailed", "xpassed": "xpassed",
}  # fmt: skip
_ASIDE = frozenset({"warning", "warnings", "deselected", "rerun"})
_COLLECTED = re.compile(r"(?:collecting \.\.\. )?collected (\d{1,9}) items?((?: / \d{1,9} \w+)*)")
_WORKERS = re.compile(r"\d{1,5} workers? \[(\d{1,9}) items?\]|gw\d{1,5} \[(\d{1,9})\](?: / gw.*)?")
_SUMMARY = re.compile(rf"(?:({_WORDS}) |({_SUBWORDS})(?=[\[( ]))")
_SKIPS = re.compile(r"SKIPPED \[(\d{1,9})\] (.+?):\d{1,9}: (.*)")


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A line that names a test."""

    nodeid: str
    word: str = ""
    """``PASSED``, ``SUBFAILED`` ...; empty where the line does not say how it went."""
    reason: str = ""
    worker: str = ""
    """``gw0``: xdist's worker; empty without xdist."""
    duration_s: float | None = None
    is_marked: bool = False
    """It ends with the progress, as pytest's own lines do unless nothing is captured."""


@dataclass(frozen=True, slots=True)
class Footer:
    """pytest's own sum. `counts` is by `TestOutcome.word`, each report counted."""

    counts: dict[str, int] = field(default_factory=dict)
    duration_s: float | None = None
    warnings: int | None = None
    collected: int | None = None
    """Of ``--collect-only``: nothing was run."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was announced."""

    items: int
    """Tests that are to be run: deselected ones are not among them."""
    errors: int = 0
    skipped: int = 0
    """Modules and classes that were skipped as a whole; nobody knows how many tests they have."""


def banner(line: str, character: str) -> str | None:
    """The title in a row of `character`, as ``==== title ====``; None where there is none."""
    if not line.startswith(character):
        return None
    row = line.rstrip()
    title = row.strip(character)
    is_titled = len(title) > 2 and title[0] == " " and title[-1] == " " and row[-1] == character
    if not is_titled or not title.strip(f"{character} "):
        return None
    return title[1:-1]


def marked(line: str) -> tuple[str, float | None, bool]:
    """The line without the progress at its end, the time that it tells, and whether it has one."""
    row = line.rstrip()
    found = _MARK.search(row, max(0, len(row) - _MARK_LENGTH))
    if found is None or (found.start() and row[found.start() - 1] != " "):
        return row, None, False
    took = float(found[1]) * _SCALES[found[2]] if found[1] else None
    return row[: found.start()].rstrip(), took, True


def node_line(line: str) -> NodeLine | None:
    """A test's line without xdist: complete, or its beginning; None where it is neither."""
    at = line.find("::")
    if at < 0:
        return None
    body, took, is_marked = marked(line)
    if not _is_path(line[:at], may_be_spaced=is_marked) and not _ROOTLESS.match(line):
        return None
    nodeid, word, reason = _outcome(body)
    if not word:
        nodeid = _begun(body, at)
        return NodeLine(nodeid) if nodeid else None
    return NodeLine(nodeid, word, reason, duration_s=took, is_marked=is_marked)


def worker_line(line: str) -> NodeLine | None:
    """A test's line with xdist: ``[gw0] [ 12%] PASSED nodeid``."""
    found = _WORKER.match(line) if line.startswith("[gw") else None
    if found is None:
        return None
    rest = line[found.end() :].rstrip()
    if found[2]:
        at = rest.find("::")
        if at < 0 or not (_is_path(rest[:at], may_be_spaced=True) or _ROOTLESS.match(rest)):
            return None
        return NodeLine(rest, found[2], worker=found[1], is_marked=True)
    nodeid = _described(rest)
    return NodeLine(nodeid, found[3], worker=found[1], is_marked=True) if nodeid else None


def lone_outcome(line: str) -> NodeLine | None:
    """An outcome that has a line of its own, because the test printed something before it."""
    body, took, is_marked = marked(line)
    found = _ALONE.fullmatch(body)
    if found is None:
        return None
    return NodeLine("", found[1] or found[3], found[2] or "", duration_s=took, is_marked=is_marked)


def glued_outcome(line: str) -> str:
    """The word that stands at an end of a printed line without a break between; else empty."""
    found = _LAST_WORD.search(line, max(0, len(line) - 8)) or _FIRST_WORD.match(line)
    return found.group() if found else ""


def lettered(line: str) -> tuple[str, str] | None:
    """The path, or an empty one, and the letters of a line without ``-v``."""
    body, _, is_marked = marked(line)
    found = _LETTERED.fullmatch(body)
    if found is None:
        # What another process wrote behind the row, before the row was ended.
        row = _GLUED_ROW.match(line)
        return ("", row[1]) if row else None
    path = found[1] or ""
    if path and "." not in path and "/" not in path:
        return None
    return (path, found[2]) if path or is_marked or len(body) > 1 or body in LETTERS else None


def footer(text: str) -> Footer | None:
    """The sum at the end, without the row around it."""
    if len(text) > _FOOTER_LIMIT:
        return None
    said, _, took = text.rpartition(" in ")
    timed = _DURATION.fullmatch(took)
    if timed is None:
        return None
    seconds = float(timed[1])
    if said == "no tests ran":
        return Footer(duration_s=seconds)
    parts = said.split(", ")
    gathered = _GATHERED.fullmatch(parts[0])
    if gathered is not None:
        number = gathered[1] or gathered[2]
        return Footer(collected=0 if number == "no" else int(number), duration_s=seconds)
    return _summed(parts, seconds)


def collected(line: str) -> Collected | None:
    """How many tests are announced, in pytest's words or in xdist's."""
    found = _COLLECTED.fullmatch(line.rstrip())
    if found is None:
        shared = _WORKERS.fullmatch(line.rstrip())
        return Collected(int(shared[1] or shared[2])) if shared else None
    aside = {"error": 0, "deselected": 0, "skipped": 0}
    for part in found[2].split(" / ")[1:]:
        number, _, what = part.partition(" ")
        what = "error" if what == "errors" else what
        if what in aside:
            aside[what] = int(number)
    items = max(int(found[1]) - aside["deselected"], 0)
    return Collected(items, aside["error"], aside["skipped"])


def summary_line(line: str) -> tuple[NodeLine, str] | None:
    """A line of the short summary: the test, and the message after it."""
    found = _SUMMARY.match(line)
    if found is None:
        return None
    rest = line[found.end() :].rstrip()
    if found[2]:
        rest = _described(rest)
    nodeid, message = _parted(rest)
    return (NodeLine(nodeid, found[1] or found[2]), message) if nodeid else None


def summed_skips(line: str) -> tuple[int, str, str] | None:
    """``SKIPPED [2] path:12: reason`` of the short summary: how many, where, and why."""
    found = _SKIPS.fullmatch(line) if line.startswith("SKIPPED [") else None
    return (int(found[1]), found[2], found[3]) if found else None


def without_subtest(name: str) -> str:
    """A title's test, without the message and the parameters of its subtest."""
    for at in _places(name, re.compile(r" [\[(]")):
        if _is_whole(name[:at]):
            return name[:at]
    return name


def begun_alone(line: str) -> str:
    """The node id of a line that says nothing but that a test begins, as xdist's do."""
    body = line.rstrip()
    return body if body.endswith("]") else _begun(body, max(body.find("::"), 0))


def unglued(nodeid: str) -> str:
    """The node id without what another process printed behind it."""
    return _begun(nodeid, max(nodeid.find("::"), 0))


def _outcome(body: str) -> tuple[str, str, str]:
    nodeid, _, word = body.rpartition(" ")
    if word in _PLAIN and _is_whole(nodeid):
        return nodeid.rstrip(), word, ""
    for found in _found(body, _REASONED):
        if _is_whole(body[: found.start()]):
            return body[: found.start()], found[1], body[found.end() :].removesuffix(")")
    for found in _found(body, _SUB):
        nodeid = body[: found.start()]
        if found.end() == len(body):
            nodeid = without_subtest(nodeid)
        if _is_whole(nodeid):
            return nodeid, found[1], ""
    return "", "", ""


def _described(rest: str) -> str:
    """The node id after the description of a subtest, which may hold anything; or nothing."""
    at = -2
    for _ in range(_TRIES):
        at = rest.find("::", at + 2)
        if at < 0:
            return ""
        start = max(rest.rfind(character, 0, at) for character in " \t:") + 1
        if "." in rest[start:at] or "/" in rest[start:at]:
            return rest[start:]
    return ""


def _begun(body: str, at: int) -> str:
    """The node id that a line begins with; what was printed may follow it."""
    space, bracket = body.find(" ", at), body.find("[", at)
    if bracket < 0 or 0 <= space < bracket:
        return body if space < 0 else body[:space]
    ends = _places(body, re.compile(r"\] "))
    if ends:
        closed = (end for end in ends if _is_closed(body[bracket : end + 1]))
        return body[: next(closed, ends[0]) + 1]
    return body if body.endswith("]") else ""


def _is_closed(params: str) -> bool:
    return params.count("[") == params.count("]")


def _summed(parts: list[str], seconds: float) -> Footer | None:
    counts: dict[str, int] = {}
    warnings = None
    is_known = False
    for part in parts:
        found = _PART.fullmatch(part)
        if found is None:
            return None
        word = _COUNTED.get(found[2])
        is_known = is_known or word is not None or found[2] in _ASIDE
        if word is not None:
            counts[word] = counts.get(word, 0) + int(found[1])
        elif found[2].startswith("warning"):
            warnings = int(found[1])
    return Footer(counts, seconds, warnings) if is_known else None


def _parted(rest: str) -> tuple[str, str]:
    """Node id and message, which `` - `` parts; a parameter may have that in it too."""
    for at in _places(rest, re.compile(" - ")):
        if _is_whole(rest[:at]):
            return rest[:at], rest[at + 3 :]
    return rest, ""


def _is_whole(nodeid: str) -> bool:
    """Whether it does not break off within its parameters."""
    return "[" not in nodeid or nodeid.endswith("]")


def _is_path(text: str, *, may_be_spaced: bool) -> bool:
    if not text or ("." not in text and "/" not in text):
        return False
    if text[0] in " \t\"'(<{[>-+":
        return False
    if " " not in text and "\t" not in text:
        return True
    return text.endswith(".py") and (may_be_spaced or "/" in text.split(" ", 1)[0])


def _found(text: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    every = pattern.finditer(text)
    return [found for _, found in zip(range(_TRIES), every, strict=False)]


def _places(text: str, pattern: re.Pattern[str]) -> list[int]:
    return [found.start() for found in _found(text, pattern)]

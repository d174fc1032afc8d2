"""Parses single lines of pytest's terminal output; every function takes linear time."""

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
RERUNS = ("RERUN", "RETRY")
"""Words of pytest-rerunfailures and pytest-retry for a failed try that another one follows."""
SUBTESTS = {
    "SUBPASSED": TestOutcome.PASSED,
    "SUBPASS": TestOutcome.PASSED,
    "SUBFAILED": TestOutcome.FAILED,
    "SUBFAIL": TestOutcome.FAILED,
    "SUBSKIPPED": TestOutcome.SKIPPED,
    "SUBSKIP": TestOutcome.SKIPPED,
    "SUBXFAIL": TestOutcome.XFAILED,
}
"""Outcome words of subtests, in pytest and in the older plug-in."""
LETTERS = {
    ".": TestOutcome.PASSED,
    "F": TestOutcome.FAILED,
    "E": TestOutcome.ERROR,
    "s": TestOutcome.SKIPPED,
    "x": TestOutcome.XFAILED,
    "X": TestOutcome.XPASSED,
}
"""Letters of outcomes without ``-v``; other letters are reruns and subtests."""

_PLAIN = frozenset({*OUTCOMES, *RERUNS})
_WORDS = "|".join((*OUTCOMES, *RERUNS))
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
"""A node id of a file outside of pytest's root folder, which has no path."""
_LETTERED = re.compile(r"(?:(\S+) )?([.FEsxXRuy,-]+)")
_GLUED_ROW = re.compile(r"([.FEsxXRuy,-]+) {1,200}\[ {0,3}\d{1,3}%\](?=\S)")
_TRIES = 8
"""Maximum number of occurrences of a word on a line that are tried."""

_FOOTER_LIMIT = 400
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:s| seconds)(?: \([^()]*\))?")
_PART = re.compile(r"(\d{1,9}) ([a-z][a-z ]{0,40})")
_GATHERED = re.compile(r"(?:(\d{1,9})/)?(\d{1,9}|no) tests? collected(?: \([^()]*\))?")
_COUNTED = {
    "passed": "passed", "failed": "failed", "error": "error", "errors": "error",
    "skipped": "skipped", "xfailed": "xfailed", "xpassed": "xpassed",
}  # fmt: skip
_SUBTESTS = ("subtests passed", "subtest passed")
_ASIDE = frozenset({"warning", "warnings", "deselected", "rerun"})
_COLLECTED = re.compile(r"(?:collecting \.\.\. )?collected (\d{1,9}) items?((?: / \d{1,9} \w+)*)")
_WORKERS = re.compile(r"\d{1,5} workers? \[(\d{1,9}) items?\]|gw\d{1,5} \[(\d{1,9})\](?: / gw.*)?")
_SUMMARY = re.compile(rf"(?:({_WORDS}) |({_SUBWORDS})(?=[\[( ]))")
_SKIPS = re.compile(r"SKIPPED \[(\d{1,9})\] (.+?):\d{1,9}: (.*)")


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A line with a test's node id."""

    nodeid: str
    word: str = ""
    """``PASSED``, ``SUBFAILED`` ...; empty if the line has no outcome."""
    reason: str = ""
    worker: str = ""
    """xdist's worker, such as ``gw0``; empty without xdist."""
    duration_s: float | None = None
    is_marked: bool = False
    """Whether the line ends with a progress mark; with capturing, every line of pytest has one."""


@dataclass(frozen=True, slots=True)
class PytestFooter:
    """The sum in pytest's last line. `counts` has the number of reports by `TestOutcome.word`."""

    counts: dict[str, int] = field(default_factory=dict)
    duration_s: float | None = None
    warnings: int | None = None
    collected: int | None = None
    """Number of tests that ``--collect-only`` listed; they were not run."""
    subtests: int = 0
    """Number of subtests that passed."""


@dataclass(frozen=True, slots=True)
class AnnouncedTests:
    """Numbers of tests in pytest's ``collected`` line."""

    items: int
    """Tests to run, without deselected ones."""
    errors: int = 0
    skipped: int = 0
    """Modules and classes that were skipped as a whole; their number of tests is unknown."""


def banner(line: str, character: str) -> str | None:
    """Return the title of a row such as ``==== title ====``; None if the line is no such row."""
    if not line.startswith(character):
        return None
    row = line.rstrip()
    title = row.strip(character)
    is_titled = len(title) > 2 and title[0] == " " and title[-1] == " " and row[-1] == character
    if not is_titled or not title.strip(f"{character} "):
        return None
    return title[1:-1]


def marked(line: str) -> tuple[str, float | None, bool]:
    """Return the line without its progress mark, the duration in it, and whether it has a mark."""
    row = line.rstrip()
    found = _MARK.search(row, max(0, len(row) - _MARK_LENGTH))
    if found is None or (found.start() and row[found.start() - 1] != " "):
        return row, None, False
    took = float(found[1]) * _SCALES[found[2]] if found[1] else None
    return row[: found.start()].rstrip(), took, True


def node_line(line: str) -> NodeLine | None:
    """Return a test's line without xdist, complete or only its beginning; None for other lines."""
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
    """Return a test's line with xdist, ``[gw0] [ 12%] PASSED nodeid``; None for other lines."""
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
    """Return an outcome on a separate line, which pytest prints if the test printed before it."""
    body, took, is_marked = marked(line)
    found = _ALONE.fullmatch(body)
    if found is None:
        return None
    return NodeLine("", found[1] or found[3], found[2] or "", duration_s=took, is_marked=is_marked)


def glued_outcome(line: str) -> str:
    """Return an outcome word glued to the start or end of a printed line; else an empty text."""
    found = _LAST_WORD.search(line, max(0, len(line) - 8)) or _FIRST_WORD.match(line)
    return found.group() if found else ""


def lettered(line: str) -> tuple[str, str] | None:
    """Return the path, which may be empty, and the letters of a line without ``-v``."""
    body, _, is_marked = marked(line)
    found = _LETTERED.fullmatch(body)
    if found is None:
        # Text that another process wrote after the row, before its line end.
        row = _GLUED_ROW.match(line)
        return ("", row[1]) if row else None
    path = found[1] or ""
    if path and "." not in path and "/" not in path:
        return None
    return (path, found[2]) if path or is_marked or len(body) > 1 or body in LETTERS else None


def footer(text: str) -> PytestFooter | None:
    """Return the sum of a footer without the row around it; None for other texts."""
    if len(text) > _FOOTER_LIMIT:
        return None
    said, _, took = text.rpartition(" in ")
    timed = _DURATION.fullmatch(took)
    if timed is None:
        return None
    seconds = float(timed[1])
    if said == "no tests ran":
        return PytestFooter(duration_s=seconds)
    parts = said.split(", ")
    gathered = _GATHERED.fullmatch(parts[0])
    if gathered is not None:
        number = gathered[1] or gathered[2]
        return PytestFooter(collected=0 if number == "no" else int(number), duration_s=seconds)
    return _summed(parts, seconds)


def collected(line: str) -> AnnouncedTests | None:
    """Return the announced number of tests, in pytest's or in xdist's words."""
    found = _COLLECTED.fullmatch(line.rstrip())
    if found is None:
        shared = _WORKERS.fullmatch(line.rstrip())
        return AnnouncedTests(int(shared[1] or shared[2])) if shared else None
    aside = {"error": 0, "deselected": 0, "skipped": 0}
    for part in found[2].split(" / ")[1:]:
        number, _, what = part.partition(" ")
        what = "error" if what == "errors" else what
        if what in aside:
            aside[what] = int(number)
    items = max(int(found[1]) - aside["deselected"], 0)
    return AnnouncedTests(items, aside["error"], aside["skipped"])


def summary_line(line: str) -> tuple[NodeLine, str] | None:
    """Return the test and the message of a line of the short summary; None for other lines."""
    found = _SUMMARY.match(line)
    if found is None:
        return None
    rest = line[found.end() :].rstrip()
    if found[2]:
        rest = _described(rest)
    nodeid, message = _parted(rest)
    return (NodeLine(nodeid, found[1] or found[2]), message) if nodeid else None


def summed_skips(line: str) -> tuple[int, str, str] | None:
    """Return count, location and reason of a line like ``SKIPPED [2] path:12: reason``."""
    found = _SKIPS.fullmatch(line) if line.startswith("SKIPPED [") else None
    return (int(found[1]), found[2], found[3]) if found else None


def without_subtest(name: str) -> str:
    """Return the test of a title, without the message and parameters of its subtest."""
    for at in _places(name, re.compile(r" [\[(]")):
        if _is_whole(name[:at]):
            return name[:at]
    return name


def begun_alone(line: str) -> str:
    """Return the node id of a line that only announces a test, as xdist's lines do."""
    body = line.rstrip()
    return body if body.endswith("]") else _begun(body, max(body.find("::"), 0))


def unglued(nodeid: str) -> str:
    """Return the node id without text that another process printed after it."""
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
    """Return the node id after a subtest's description, which may be any text; empty without it."""
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
    """Return the node id at the beginning of a line; printed text may follow it."""
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


def _summed(parts: list[str], seconds: float) -> PytestFooter | None:
    counts: dict[str, int] = {}
    warnings, subtests = None, 0
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
        elif found[2] in _SUBTESTS:
            subtests = int(found[1])
    return PytestFooter(counts, seconds, warnings, subtests=subtests) if is_known else None


def _parted(rest: str) -> tuple[str, str]:
    """Return node id and message, separated by `` - ``, which a parameter may contain as well."""
    for at in _places(rest, re.compile(" - ")):
        if _is_whole(rest[:at]):
            return rest[:at], rest[at + 3 :]
    return rest, ""


def _is_whole(nodeid: str) -> bool:
    """Return whether the node id does not end within its parameters."""
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

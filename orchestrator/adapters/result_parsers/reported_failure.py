"""Finds a self-reported failure in the output of one of the agent's jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile

from orchestrator.adapters.result_parsers.log_notices import SPEAKING, LogNotices
from orchestrator.adapters.result_parsers.text_lines import (
    CROSSES,
    FAILED_TOOL,
    LINE_LIMIT,
    text_lines,
)
from orchestrator.application.ports.result_parsers import HEAD_BYTES, Artifact, SelfReport
from orchestrator.domain.parsed_results import ParsedFallback

_WORDS = (
    *(
        b"fail",
        b"error",
        b"skip",
        b"deselect",
        b"pass",
        b"succe",
        b"ok",
        b"total",
        b"test",
        b"check",
    ),
    *(b"exception in thread", b"exception was never retrieved", b"process "),
    *(b"1..", b"tap version", b"[ng]", b"[ko]", b"critical"),
    *(word.encode() for word in (*CROSSES, *SPEAKING)),
)
_TAIL_BYTES = 16 << 10
"""Number of bytes at the end of the output that are searched for a traceback."""


def read_self_report(output: Iterable[bytes]) -> SelfReport:
    """Return the failure that a program reports in its output.

    Args:
        output: The complete output of the job, in pieces.
    """
    with NamedTemporaryFile() as file:
        tail = bytearray()
        file.writelines(_telling(_with_tail(output, tail)))
        size = file.tell()
        file.seek(0)
        artifact = Artifact("output.txt", Path(file.name), size, file.read(HEAD_BYTES))
        reader, notices, fallbacks = SelfReportReader(), LogNotices(), []
        for line in text_lines(artifact):
            reader.take(line)
            found = notices.see(line)
            fallbacks += [said.reason for said in found if isinstance(said, ParsedFallback)]
        failure = reader.failure(tail.decode(errors="replace"))
        return SelfReport(failure, tuple(fallbacks), reader.nothing_passed())


def _with_tail(output: Iterable[bytes], tail: bytearray) -> Iterator[bytes]:
    for piece in output:
        tail += piece
        del tail[:-_TAIL_BYTES]
        yield piece


def _last_exception(tail: str) -> str:
    """Return the last line of a traceback at the end of the output; empty without one.

    The exit code may be another program's. A traceback that other output follows may be of an
    exception that was handled.
    """
    found = _TRACEBACK.search(tail)
    before = (found["before"] or "") if found is not None else ""
    is_ignored = before.startswith("Exception ignored") and "atexit callback" not in before
    if found is None or is_ignored:
        return ""
    return found["error"][:_QUOTED]


def _last_crash(tail: str) -> str:
    """Return the last line if it is a shell's message about a crashed process; else empty.

    Trace lines of a shell are ignored. A crashed process that other output follows may have been
    killed on purpose.
    """
    lines = (_STAMP.sub("", line).rstrip() for line in reversed(tail.splitlines()))
    last = next((line for line in lines if line and not _SHELL.match(line)), "")
    return last[:_QUOTED] if _CRASH.match(last) else ""


def _telling(output: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that may report a failure, each shortened to `LINE_LIMIT` bytes."""
    rest = b""
    for piece in output:
        text = rest + piece.replace(b"\r", b"\n")  # overwritten text is searched as well
        *lines, rest = text.split(b"\n") if _tells(text) else (text[text.rfind(b"\n") + 1 :],)
        yield from (line[:LINE_LIMIT] + b"\n" for line in lines if _tells(line))
        rest = rest[:LINE_LIMIT]
    if _tells(rest):
        yield rest


def _tells(text: bytes) -> bool:
    """Return whether the text has a word that every self-report contains."""
    text = text.lower()
    return any(word in text for word in _WORDS)


MARK = re.compile(
    r"^\s{0,20}\[ {0,9}"
    r"(?P<word>PASS|PASSED|OK|FAIL|FAILED|FAILURE|NG|KO|NOT OK|ERROR|SKIP|SKIPPED) {0,9}\]"
    r"\s{1,9}(?P<said>\S.{0,400})"
)
RESULTS = re.compile(
    r"^\W{0,8}(?:results?|summary|total)\s?:\s{0,8}(?P<passed>\d{1,7})\s?/\s?(?P<total>\d{1,7})"
    r"\s(?:[\w-]{1,30}\s){0,2}passed\b",
    re.IGNORECASE,
)
_QUOTED = 200
"""Maximum number of characters of a quoted line."""
_TRACEBACK = re.compile(
    r"^(?P<before>.*\n)?Traceback \(most recent call last\):\r?\n(?:[ \t]+\S.*\n)*"
    r"(?P<error>[A-Za-z_].*)\s*\Z",
    re.MULTILINE,
)
_ESCAPES = re.compile(r"\x1b\[[\d;]{0,20}m")
_BAD = r"fail(?:ed|ures?|ing)?|errors?|not ok"
_GOOD = re.compile(r"pass|ok|total|tests?|checks?|examples?")
_PASSED = re.compile(r"pass|ok")
_TESTED = re.compile(r"tests?|checks?|examples?")
_PASSED_OVER = re.compile(r"skip|ignored|pending|deselected|xfailed")
_WORD = (
    rf"(?:{_BAD}|pass(?:ed|ing)?|ok|skip(?:ped)?|ignored|filtered out|measured|total|checks?"
    r"|pending|tests?(?: run| cases)?|assertions|examples?"
    r"|xfailed|xpassed|deselected|warnings?|rerun|subtests passed)"
)
_TERM = rf"(?:\d{{1,7}}\s{_WORD}|{_WORD}\s?[:=|]\s{{0,24}}\d{{1,7}})"
_FIGURE = (
    r"(?!\W{0,8}(?:accuracy|recall|precision|score|coverage|top[- ]?\d|wer|cer|retries"
    r"|humaneval|quorum|votes?|students?)\b)"
)
"""Excludes lines whose counts are not of tests: accuracies, scores, retries, votes."""
_DATA = (
    r"(?!(?:[\w-]{1,30}\s){0,2}(?:samples?|rows?|records?|points?|items?|tokens?|documents?"
    r"|requests?|replicas?|nodes?|votes?|students?|users?)\s(?:passed|ok|succeeded|successful)\b)"
)
"""Excludes lines whose counts are of data or servers, such as samples or requests."""
_COUNTS = re.compile(
    rf"^{_FIGURE}"
    r"\W{0,80}(?:(?:doctest\]|failed!\s{1,4}-)\s{1,4}|[a-z][a-z ]{0,30}:\s{0,9})?"
    rf"(?P<terms>{_TERM}(?:(?:\s{{0,9}}[,;|/]|\sand|\s)\s{{0,9}}{_TERM}){{0,9}})"
    r"(?P<took>\s(?:in\s|\()[\d.]{1,12}\s?m?s\b.{0,40})?\W{0,80}$",
    re.IGNORECASE,
)
"""``1 failed, 2 passed in 0.12s``, ``Passed: 3, Failed: 2``, ``Tests: 1 failed, 3 total``."""
_COUNT = re.compile(
    rf"(?P<first>\d{{1,7}})\s(?P<word>{_WORD})\b"
    rf"|(?P<label>{_WORD})\s?[:=|]\s{{0,24}}(?P<last>\d{{1,7}})",
    re.IGNORECASE,
)
_NUMBER = r"\d{1,3}(?:,\d{3}){1,2}|\d{1,7}"
_OF = rf"(?P<passed>{_NUMBER})\s?(?:/|(?:out\s)?of)\s?(?P<total>{_NUMBER})"
_SHARES = tuple(
    re.compile(
        rf"^{_FIGURE}\W{{0,8}}(?:[a-z][a-z ]{{0,30}}:\W{{0,9}})?{form}\W{{0,8}}$", re.IGNORECASE
    )
    for form in (
        rf"{_OF}\s{_DATA}(?:[\w-]{{1,30}}\s){{0,3}}(?:passed|ok|succeeded|successful)",
        rf"(?:passed|succeeded):?\s{{0,9}}{_OF}(?:\s[\w-]{{1,30}}){{0,2}}",
    )
)
"""``7/8 tests passed``, ``Summary: 7 of 8 checks passed``, ``passed 7 out of 8``."""
_GOOD_MARKS = {"PASS", "PASSED", "OK", "SKIP", "SKIPPED"}
_ANY_MARK = re.compile(MARK.pattern, re.IGNORECASE)
_STAMP = re.compile(
    r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,80}:"
    r"|^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,12}\s{1,4}"
    r"(?:\[?(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL)\]?\s{0,4}[-:|]?\s{1,4})?"
)
"""Prefix of lines that the logging module wrote."""
_TESTS = r"(?:tests?|checks?|demos?|examples?|cases?|assertions?|scenarios?|suites?|specs?)"
_RUNNERS = re.compile(
    r"FAILED\s\((?:failures|errors|unexpected successes)="  # unittest
    r"|(?:FAILED|ERROR)\s[^\s:]{1,200}\.py::"  # pytest's short summary
    r"|ERROR\s(?:[^\s:]{1,200}/)?[^\s:/]{0,80}test[^\s:/]{0,80}\.py(?:\s-\s|$)"
    r"|\s{0,40}---\sFAIL:\s"  # go test
    r"|test\sresult:\sFAILED\."  # cargo test
    r"|FAIL(?:ED|URE)?:\s(?!\s{0,9}(?:0|none|no)\b)"  # unittest, and many others
    r"|\s{0,40}not\sok\s\d{1,7}\b(?!.*#\s?(?i:TODO|SKIP))"  # TAP
    r"|TestResults\(failed=[1-9]"  # doctest
    r"|\d{1,3}%\stests\spassed,\s[1-9]\d{0,6}\stests\sfailed\sout\sof\s"  # ctest
    r"|\*{3}Test\sFailed\*{3}\s[1-9]"  # doctest
    r"|make(?:\[\d{1,3}\])?:\s(?:\*{3}\s)?\[[^\]]{1,200}\]\sError\s[1-9]"
    r"|Exception\sin\sthread\s\S"  # threading
    r"|Process\s\w{1,40}-\d{1,6}(?::\d{1,6}){0,3}:$"  # multiprocessing, before a traceback
    r"|Task\sexception\swas\snever\sretrieved"  # asyncio
    r"|(?i:results?|summary|total)\s?:\s{0,8}[1-9]\d{0,6}\s?/\s?\d{1,7}\s(?:[\w-]{1,30}\s){0,2}"
    r"failed\b"
    r"|Failed\sTests\s\([1-9]\d{0,6}\):"  # lit
    r"|\*{3}\s[1-9]\d{0,6}\sfailures?\s(?:is|are)\sdetected\s"  # Boost.Test
    r"|Executed\s\d{1,7}\sof\s\d{1,7}\s.{0,40}\([1-9]\d{0,6}\sFAILED\)"  # Karma
    rf"|(?i:[1-9]\d{{0,6}}\s(?:out\s)?of\s\d{{1,7}}\s{_TESTS}\s(?:have\s)?failed)\W{{0,8}}$"
    rf"|(?i:all\s(?:[\w-]{{1,30}}\s){{0,2}}{_TESTS}\s(?:have\s)?(?:passed|succeeded|ok)"
    r"\s?[:=]\s{0,4}(?:false|no))\W{0,8}$"
    r"|(?!.{0,80}(?i:expect))(?i:result|status|overall|verdict)\s?[:=]\s{0,4}"
    r"(?:FAIL|FAILED|FAILURE)\s\("
    r"(?!0[\s/%)](?!.{0,40}(?i:pass|ok\b|succe))|(?i:[\w\s]{0,20}rate)\b)"
    rf"|(?i:{_FIGURE}(?:[a-z][a-z ]{{0,30}}:\s{{1,4}})?(?:all|some|several|many|one or more"
    rf"|at least one|[1-9]\d{{0,6}})\s(?:of\s(?:the|our)\s)?(?:[\w-]{{1,30}}\s){{0,2}}{_TESTS}"
    r"\s(?:have\s|has\s)?failed)\W{0,8}$"  # Some checks failed!
    r"|(?!.*(?i:expect)).*(?:\bNOT\sOK|\[\s?(?:FAIL|FAILED|FAILURE|NG|KO)\s?\])\W{0,8}$"
    rf"|{FAILED_TOOL}"
    r"|(?!.*(?i:expect)).*(?:[:=]|\.\.|(?i:tests?|build|result))\s{0,9}"
    r"(?:FAIL|FAILED|FAILURE)[!.]?\W{0,8}$"  # Result = FAIL, ** TEST FAILED **, converges ... FAIL
)

_CROSS = re.compile(
    rf"\s{{0,20}}(?:[-*•]\s)?\[?[{CROSSES}]\ufe0f?\]?\s{{0,4}}(?![=:\s]|0\b)"
    r"(?![\w ]{1,30}[:=]\s{0,9}(?:0|none|no)\W{0,8}$)(?!.*(?:[✅✓✔]|(?i:as expected|\(expected)))"
    r"\S"
)
"""``✗ scale``. A line that explains the signs has a tick or an equals sign, too."""
_CRITICAL = re.compile(
    r".{0,60}\bCRITICAL\b(?!.*(?i:expect)).{0,200}\b(?:FAIL|FAILED|FAILURE)\b(?!\s?[:=]\s?0)"
)
_CELL = re.compile(
    r"[|│┃║][\s*_`]{0,40}(?P<word>FAIL|FAILED|FAILURE|NG|NOT OK|PASS|PASSED|OK|EXPECTED)"
    r"[\s*_`]{0,40}(?=[|│┃║](?!\s{0,40}0\s{0,40}[|│┃║]))",
    re.IGNORECASE,
)

_LABELLED = re.compile(
    r"[|│┃║][\s*_`]{0,40}(?P<word>FAIL|FAILED|PASS|PASSED)[\s*_`]{0,40}(?P<cells>[|│┃║].*)$"
)
"""A row of a table whose first cell is FAIL or PASS."""
_FIGURES = re.compile(
    r"(?!\D*\d{1,7}\D*$)(?:[|│┃║]\s{0,40}[-+]?\d[\d.,]{0,20}\s?%?\s{0,40}){1,20}[|│┃║]?$"
)
"""Cells with numbers only; a single whole number does not fit, because it is a count."""


def _label_of_row(line: str) -> str:
    """Return PASS or FAIL of a row ``| FAIL | 0.88 | 12 |``; empty for any other line."""
    found = _LABELLED.match(line.strip())
    return found["word"][:4] if found and _FIGURES.match(found["cells"].strip()) else ""


def _is_failed_row(line: str) -> bool:
    """Return whether a row of a table has a cell FAIL and, unlike a table's head, no cell PASS."""
    if not line.lstrip().startswith(("|", "│", "┃", "║")):
        return False
    words = {found["word"] for found in _CELL.finditer(line)}
    is_head = any(word.upper() in (*_GOOD_MARKS, "EXPECTED") for word in words)
    return not is_head and any(word.isupper() for word in words)


_CRASH = re.compile(
    r"(?!.*(?i:expect))(?:\S{1,200}:\sline\s\d{1,6}:\s{1,4}\d{1,9}\s)?"
    r"(?:Segmentation\sfault|Aborted|Bus\serror|Illegal\sinstruction"
    r"|Floating\spoint\sexception)\s{1,20}\(core\sdumped\)"
)
_SHELL = re.compile(r"\++\s|(?:exit|logout)$")
"""Lines of a shell that say nothing about a result: the trace of ``set -x``, and ``logout``."""
_PLAN = re.compile(r"1\.\.(\d{1,7})\s{0,4}(?:#.*)?$")
_RESULT = re.compile(r"(?:not\s)?ok\b(?:\s{1,4}(?P<number>\d{1,7})\b)?")
"""A plan and a result of TAP."""


_NOTHING = re.compile(
    r"Ran\s0\stests\sin\s\d"  # unittest
    r"|=*\s?no\stests\sran\sin\s"  # pytest
    r"|No\stests\swere\sfound!!!"  # ctest
    r"|1\.\.0(?:\s{0,4}#.*)?$"  # TAP
    r"|test\sresult:\sok\.\s0\spassed;"  # cargo test
    r"|\[ {0,9}PASSED {0,9}\]\s0\stests?\b"  # GoogleTest
    r"|testing:\swarning:\sno\stests\sto\srun"  # go test
    r"|\s{0,4}[\w.-]{1,80}:\sSKIP\s(?:⚠\sin\s|\()\d"  # tox
    r"|nox\s>\s\*\s\S{1,80}:\sskipped$"
)
"""Lines in which a test runner reports that no test ran or that none passed."""
_SOMETHING = re.compile(
    r"test\sresult:\sok\.\s[1-9]"
    r"|ok\s{1,9}\S{1,200}\s{1,9}(?:\(cached\)|[\d.]{1,12}s)(?!.*\[no\stests)"  # go test
    r"|100%\stests\spassed,\s0\stests\sfailed\sout\sof\s[1-9]"  # ctest
    r"|\s{0,4}[\w.-]{1,80}:\sOK\s(?:✔\sin\s|\()\d"  # tox
    r"|nox\s>\s\*\s\S{1,80}:\ssuccess$"
)
"""Lines in which a test runner reports a passed test without a count."""
_RAN = re.compile(r"Ran\s(?P<tests>\d{1,7})\stests?\sin\s\d")
_RAN_WELL = re.compile(
    r"OK(?:\s\((?:skipped=(?P<skipped>\d{1,7}))?(?:,\s)?"
    r"(?:expected\sfailures=(?P<expected>\d{1,7}))?\))?$"
)
"""The two lines of unittest's summary."""


def _is_passed_result(line: str) -> bool:
    return re.match(r"ok\s{1,4}\d{1,7}\b(?!.*#\s?(?i:SKIP))", line) is not None


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


@dataclass(slots=True)
class _Sum:
    """The number of tests that did not pass, with the line that reports it."""

    line: str = ""
    short: int = -1
    """Number of tests that did not pass; -1 without a line."""


@dataclass(slots=True)
class SelfReportReader:
    """Finds the lines of an output in which its program reports a failure."""

    _failure: str = ""
    """The first line that reports a failure by itself."""
    _error: str = ""
    """The first line with a mark of an error."""
    _skipped: int = 0
    _results: _Sum = field(default_factory=_Sum)
    """The worst ``Results:`` line."""
    _share: _Sum = field(default_factory=_Sum)
    """The last line such as ``7/8 tests passed``: earlier ones may have reported progress."""
    _plan: _Sum = field(default_factory=lambda: _Sum(short=0))
    """Planned TAP results without the results that were read; the line is the last plan's."""
    _is_tap: bool = False
    """Whether a numbered result or a TAP version was read, so that a plan is a plan of TAP."""
    _section: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By word, the number in a line that counts only that word, with the line.

    A repeated word begins another section.
    """

    _labels: dict[str, list[str]] = field(default_factory=lambda: {"PASS": [], "FAIL": []})
    """Rows of figures by label; a table of classes has equally many rows of each label."""
    _nothing: str = ""
    """The first line in which a test runner reports that no test passed."""
    _something: bool = False
    """Whether a line reports a passed test."""
    _ran: int = 0
    """Number of tests that unittest ran last."""

    def take(self, line: str) -> None:
        """Read the next line."""
        is_critical = _CRITICAL.match(line) is not None
        line = _STAMP.sub("", line)
        if _NOTHING.match(line):
            self._nothing = self._nothing or line
        elif label := _label_of_row(line):
            self._labels[label].append(line)
        else:
            self._take_report(line, is_critical=is_critical)

    def _take_report(self, line: str, *, is_critical: bool) -> None:
        if is_critical or _CROSS.match(line):
            self._failure = self._failure or line
        elif (mark := _ANY_MARK.match(line)) and not mark["said"].startswith("="):
            self._take_mark(mark["word"].upper(), line)
        elif summed := RESULTS.match(line):
            short = int(summed["total"]) - int(summed["passed"])
            self._something = self._something or int(summed["passed"]) > 0
            if short > self._results.short:
                self._results = _Sum(line, short)
        elif share := next(filter(None, (form.match(line) for form in _SHARES)), None):
            self._share = _Sum(line, _whole(share["total"]) - _whole(share["passed"]))
            self._something = self._something or _whole(share["passed"]) > 0
        elif counts := _COUNTS.match(line):
            self._take_counts(counts, line)
        elif _RUNNERS.match(line) or _is_failed_row(line):
            self._failure = self._failure or line
        else:
            self._take_unittest(line)
            self._take_tap(line)

    def _take_unittest(self, line: str) -> None:
        self._something = self._something or _SOMETHING.match(line) is not None
        if ran := _RAN.match(line):
            self._ran = int(ran["tests"])
        elif self._ran and (well := _RAN_WELL.match(line)):
            passed = self._ran - int(well["skipped"] or 0) - int(well["expected"] or 0)
            self._take_passed(passed, line)

    def _take_passed(self, number: int, line: str) -> None:
        self._something = self._something or number > 0
        self._nothing = self._nothing or ("" if number > 0 else line)

    def _take_tap(self, line: str) -> None:
        if plan := _PLAN.match(line):
            self._plan = _Sum(line, self._plan.short + int(plan[1]))
        elif result := _RESULT.match(line):
            self._plan.short -= 1
            self._is_tap = self._is_tap or result["number"] is not None
            self._something = self._something or _is_passed_result(line)
        elif line.startswith("TAP version "):
            self._is_tap = True

    def _take_mark(self, word: str, line: str) -> None:
        self._plan.short -= 1
        if word == "ERROR":
            self._error = self._error or line
        elif word not in _GOOD_MARKS:
            self._failure = self._failure or line
        elif word.startswith("SKIP"):
            self._skipped += 1
        else:
            self._something = True

    def _take_counts(self, counts: re.Match[str], line: str) -> None:
        terms = [
            ((one["word"] or one["label"]).lower(), int(one["first"] or one["last"]))
            for one in _COUNT.finditer(counts["terms"])
        ]
        bad = any(number for word, number in terms if re.fullmatch(_BAD, word))
        good = any(_GOOD.match(word) for word, _ in terms)
        if bad and (counts["took"] or (good and len(terms) > 1)):
            self._failure = self._failure or line
            return
        if counts["took"] or len(terms) > 1:
            self._take_sum(dict(terms), line)
        if len(terms) == 1:
            word, number = terms[0]
            if word in self._section:
                self._end_section()
            self._section[word] = number, line

    def _take_sum(self, counts: Mapping[str, int], line: str) -> None:
        """Note whether a test passed: by the count of passed tests, or of run less skipped ones."""
        passed = [number for word, number in counts.items() if _PASSED.match(word)]
        ran = [number for word, number in counts.items() if _TESTED.match(word)]
        skipped = [number for word, number in counts.items() if _PASSED_OVER.match(word)]
        if passed or ran or skipped:
            self._take_passed(sum(passed) if passed else sum(ran) - sum(skipped), line)

    def _end_section(self) -> None:
        """End the section: it failed if it counts both failures and tests that passed or ran."""
        bad = [line for word, (n, line) in self._section.items() if n and re.fullmatch(_BAD, word)]
        if bad and any(_GOOD.match(word) for word in self._section):
            self._failure = self._failure or bad[0]
        elif len(self._section) > 1:
            counts = {word: number for word, (number, _) in self._section.items()}
            self._take_sum(counts, next(reversed(self._section.values()))[1])
        self._section = {}

    def failure(self, tail: str) -> str:
        """Return the line in which the program reports its own failure; empty without one.

        The first of these counts: a mark of failure (``FAIL: x``) or a summary with failures; a sum
        such as ``9/10 passed`` in which more tests are missing than were skipped; a TAP plan with
        too few results; a mark of an error together with a sum, since a log may print harmless
        errors; the last line of a traceback or of a crash at the end.

        Args:
            tail: The last lines of the output, complete.
        """
        self._end_section()
        tail = _ESCAPES.sub("", tail)
        return self._line().strip()[:_QUOTED] or _last_exception(tail) or _last_crash(tail)

    def nothing_passed(self) -> str:
        """Return the line in which a test runner reports that no test passed.

        Empty if a test passed or no line reports it.
        """
        return "" if self._something else self._nothing.strip()[:_QUOTED]

    def _line(self) -> str:
        passed, failed = self._labels["PASS"], self._labels["FAIL"]
        if self._failure or len(passed) != len(failed):
            return self._failure or "".join(failed[:1])
        for summed in (self._results, self._share):
            if summed.short > self._skipped:
                return summed.line
        if self._is_tap and self._plan.line and self._plan.short > 0:
            return self._plan.line
        return self._error if self._results.line else ""

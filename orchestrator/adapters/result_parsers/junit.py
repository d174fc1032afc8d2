"""JUnit XML, as pytest, Maven, Gradle, GoogleTest, Jest and others write it.

pytest's two families name a test by its module's dotted path and its classes; which part is the
module is found by `junit_names`. Some outcomes of pytest are lost in this format: an unexpected
pass (``xpassed``) is recorded as passed, a test with a skipped subtest as skipped, and passed
subtests are counted without names: only another artifact of the run tells them from tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import (
    LINE_LIMIT,
    as_count,
    as_line,
    as_seconds,
    as_text,
    head_text,
    last_error,
    parsed_time,
    shortened,
    skip_reason,
)
from orchestrator.adapters.result_parsers.junit_verdicts import (
    BAD,
    COUNTS_OF_FAILURES,
    NOT_RUN,
    VERDICTS,
    contradiction,
    contradiction_of_property,
    outcome_of,
    word_of,
)
from orchestrator.adapters.result_parsers.xml_stream import Begin, ElementEnd, Torn, xml_events
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedItem,
    ParsedNotice,
    ParsedProblem,
    ParsedTally,
    ParsedTest,
    Provenance,
)
from orchestrator.domain.units import plural

_ROOT = re.compile(r"<(?:\w+:)?(testsuites?)[\s/>]")
_SUITES: Final = {"testsuites", "testsuite"}
_EARLIER: Final = {
    "rerunFailure": TestOutcome.FAILED,
    "flakyFailure": TestOutcome.FAILED,
    "rerunError": TestOutcome.ERROR,
    "flakyError": TestOutcome.ERROR,
}
_STATED: Final = {"failed": "failures", "error": "errors", "skipped": "skipped"}
_MOST_SUITES: Final = 100_000
_MOST_TESTS: Final = 200_000
"""Maximum number of remembered tests, to detect those with several testcases."""
_MOST_CONTRADICTIONS: Final = 20
_PHASE = re.compile(r"failed on (setup|teardown) with \"?(.*?)\"?$", re.DOTALL)


class JUnitXml:
    """Parses JUnit XML (`Dialect`)."""

    name = "junit-xml"
    version = 8
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        head = head_text(artifact)
        return 0.95 if head.startswith("<") and _ROOT.search(head) else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        reading = _JunitReading()
        for event in xml_events(artifact):
            if isinstance(event, Begin):
                yield from reading.begin(event)
            elif isinstance(event, ElementEnd):
                yield from reading.end(event)
            else:
                yield from reading.tear(event)
                return
        yield from reading.finish()


@dataclass(slots=True)
class _OpenTestcase:
    """A testcase whose end was not read yet."""

    attributes: Mapping[str, str]
    suite: str
    outcomes: list[TestOutcome] = field(default_factory=list)
    earlier: list[TestOutcome] = field(default_factory=list)
    words: dict[TestOutcome, tuple[str, str, str]] = field(default_factory=dict)
    """Reason, message and text of the first element of each outcome."""
    stated_failure: TestOutcome = TestOutcome.MISSING
    """The failure that a property reports; MISSING without one."""
    is_unexpected_pass: bool = False
    """Whether a property reports an unexpected pass, for which JUnit XML has no element."""

    def add(self, tag: str, attributes: Mapping[str, str], text: str) -> None:
        """Read one child element, complete or truncated."""
        if tag in _EARLIER:
            self.earlier.append(_EARLIER[tag])
            return
        outcome = outcome_of(tag, text)
        if outcome is None:
            return
        if attributes.get("type") == "pytest.xfail":
            outcome = TestOutcome.XFAILED
        self.outcomes.append(outcome)
        self.words.setdefault(outcome, _words(outcome, attributes.get("message", ""), text))

    def add_property(self, attributes: Mapping[str, str]) -> None:
        """Read a property of the testcase: some writers report a failure only in a property."""
        if attributes.get("name", "").lower() in VERDICTS:
            word = word_of(attributes.get("value", ""))
            self.stated_failure = max(self.stated_failure, BAD.get(word, TestOutcome.MISSING))
            self.is_unexpected_pass |= word == TestOutcome.XPASSED.word

    def parsed_test(self, nodeid: str, *, is_torn: bool) -> ParsedTest:
        """The test."""
        said = {word_of(v) for name, v in self.attributes.items() if name.lower() in VERDICTS}
        # GoogleTest marks tests not run by attributes.
        whole = TestOutcome.SKIPPED if said & NOT_RUN else TestOutcome.PASSED
        outcome = max(self.outcomes, default=TestOutcome.MISSING if is_torn else whole)
        outcome = max(outcome, self.stated_failure, *(BAD[word] for word in said & BAD.keys()))
        doubt, worst = contradiction(self.attributes)
        if outcome is TestOutcome.PASSED and doubt:
            outcome = worst
            self.words.setdefault(outcome, ("", f"it says {doubt}", ""))
        if outcome is TestOutcome.PASSED and self.is_unexpected_pass:
            outcome = TestOutcome.XPASSED
        reason, message, text = self.words.get(outcome, ("", "", ""))
        return ParsedTest(
            nodeid,
            outcome,
            as_seconds(self.attributes.get("time")),
            reason,
            message,
            text,
            tuple(self.earlier),
        )


def _is_failure(element: ElementEnd) -> bool:
    return outcome_of(element.tag, element.text) in (TestOutcome.FAILED, TestOutcome.ERROR)


class _JunitReading:
    """The state of reading one document."""

    def __init__(self) -> None:
        self._names = JunitTestIds()
        self._open: list[Begin] = []
        self._case: _OpenTestcase | None = None
        self._waiting: ParsedTest | None = None
        self._sums = _Sums()
        self._begun = ""
        self._failures = 0
        """Elements of failures and errors so far."""
        self._before: list[int] = []
        """As many at the beginning of each open suite."""
        self._stated: list[str] = []
        """The property of each open suite that tells a failure; empty without."""
        self._contradictions: list[str] = []

    def begin(self, event: Begin) -> Iterator[ParsedItem]:
        """Read the beginning of an element. Raises UnreadableError."""
        if not self._open and event.tag not in _SUITES:
            raise UnreadableError(f"it is XML, but not JUnit's: it begins with <{event.tag}>")
        if event.tag in _SUITES:
            self._before.append(self._failures)
            self._stated.append("")
            yield from parsed_time(event.attributes.get("timestamp"))
            yield from self._begin_suite(event)
        elif event.tag == "testcase":
            suite = next((e for e in reversed(self._open) if e.tag == "testsuite"), None)
            self._case = _OpenTestcase(
                event.attributes, suite.attributes.get("name", "") if suite else ""
            )
        self._open.append(event)

    def end(self, event: ElementEnd) -> Iterator[ParsedItem]:
        """Read the end of an element."""
        began = self._open.pop()
        parent = self._open[-1].tag if self._open else ""
        self._failures += _is_failure(event)
        if event.tag in _SUITES:
            yield from self._check_failures(began, self._failures - self._before.pop())
        elif event.tag == "property":
            self._see_property(began.attributes)
        elif event.tag == "testcase" and self._case is not None:
            yield from self._tell(is_torn=False)
        elif self._case is not None and parent == "testcase":
            self._case.add(event.tag, began.attributes, event.text)
        elif parent in _SUITES and _is_failure(event):
            message = as_line(began.attributes.get("message")) or as_line(event.text)
            message = message or f"<{event.tag}>"
            self._contradictions.append(message)
            yield ParsedProblem("error", f"a whole suite went wrong: {message}")

    def tear(self, torn: Torn) -> Iterator[ParsedItem]:
        """Yield the truncated testcase and the problem of a document that ends too early."""
        if self._case is not None:
            for element in self._open[-1:]:
                self._case.add(element.tag, element.attributes, "")
            yield from self._tell(is_torn=True)
        if self._waiting is not None:
            yield self._waiting
        yield ParsedProblem("error", f"torn: {torn.reason}; what came before it is kept")
        yield from self._sums.announced()

    def finish(self) -> Iterator[ParsedItem]:
        """Yield the last testcase and the sums of the complete document."""
        if self._waiting is not None:
            yield self._waiting
        is_known = bool(self._contradictions)
        for said in self._sums.statements(is_pytest=self._names.is_pytest, is_known=is_known):
            if isinstance(said, ParsedProblem):
                self._contradictions.append(said.message)
            if isinstance(said, ParsedEnd) and self._contradictions:
                yield replace(said, exit_code=1, detail=self._contradictions[0])
            else:
                yield said

    def _see_property(self, attributes: Mapping[str, str]) -> None:
        name, value = attributes.get("name", ""), attributes.get("value", "")
        if self._case is not None:
            self._case.add_property(attributes)
        elif self._stated and (told := contradiction_of_property(name, value)):
            self._stated[-1] = told

    def _check_failures(self, suite: Begin, found: int) -> Iterator[ParsedItem]:
        """Yield a problem if the suite's counts or attributes report failures that it lacks."""
        counts = {name.lower(): as_count(value) or 0 for name, value in suite.attributes.items()}
        told = max(
            counts.get("failures", 0) + counts.get("errors", 0),
            *(counts.get(name, 0) for name in COUNTS_OF_FAILURES),
        )
        stated = self._stated.pop()
        doubt = contradiction(suite.attributes)[0] or stated
        name = as_line(suite.attributes.get("name")) or suite.tag
        text = ""
        if told > found:
            number = plural(told, "failure or error", "failures or errors")
            text = f"{name} counts {number}, and contains {found}"
        elif doubt and not found:
            text = f"{name} says {doubt}, and none of its tests failed"
        if text and len(self._contradictions) < _MOST_CONTRADICTIONS:
            self._contradictions.append(text)
            yield ParsedProblem("error", text)

    def _begin_suite(self, event: Begin) -> Iterator[ParsedItem]:
        self._names.see_suite(event.attributes.get("name", ""))
        self._sums.see(event.tag, event.attributes, is_outermost=self._is_outermost(event.tag))
        hostname = as_line(event.attributes.get("hostname"))
        if hostname and hostname != self._begun:
            self._begun = hostname
            yield ParsedEnvironment({"machine": {"hostname": hostname}})

    def _is_outermost(self, tag: str) -> bool:
        return not any(e.tag == "testsuite" for e in self._open) and tag == "testsuite"

    def _tell(self, *, is_torn: bool) -> Iterator[ParsedItem]:
        case, self._case = self._case, None
        if case is None:
            return
        nodeid = self._names.nodeid(case.attributes, case.suite)
        test = case.parsed_test(nodeid, is_torn=is_torn)
        self._failures += not case.outcomes and test.outcome in _EARLIER.values()
        self._sums.see_case(case.outcomes, test)
        before, self._waiting = self._waiting, test
        if before is None:
            return
        if before.nodeid == nodeid and self._names.is_pytest:
            self._waiting = _together(before, test)
            return
        yield before


@dataclass(slots=True)
class _Sums:
    """Sums that the suites declare, and sums of the testcases that were found."""

    _root: Mapping[str, str] = field(default_factory=dict)
    _suites: list[Mapping[str, str]] = field(default_factory=list)
    _elements: Counter[str] = field(default_factory=Counter)
    _reports: int = 0
    """Sum as pytest counted until 9.1.

    A failed teardown is an additional report after a passed call, but not after a failed call.
    """
    _cases: int = 0
    """Sum as pytest counts since 9.2: a failed teardown is additional only after a failed call."""
    _outcomes: Counter[str] = field(default_factory=Counter)
    _worst: dict[bytes, TestOutcome] = field(default_factory=dict)
    """Worst outcome by digest of the test's id: xdist may write its second testcase much later."""

    def see(self, tag: str, attributes: Mapping[str, str], *, is_outermost: bool) -> None:
        """Read the beginning of a suite."""
        if tag == "testsuites":
            self._root = attributes
        elif is_outermost and len(self._suites) < _MOST_SUITES:
            kept = ("tests", "failures", "errors", "skipped", "disabled", "time")
            self._suites.append({k: attributes[k] for k in kept if k in attributes})

    def see_case(self, outcomes: list[TestOutcome], test: ParsedTest) -> None:
        """Count one testcase."""
        self._reports += max(1, len(outcomes))
        self._cases += max(1, len(outcomes) - (test.reason == "teardown"))
        for outcome in outcomes:
            word = "skipped" if outcome is TestOutcome.XFAILED else outcome.word
            self._elements[word] += 1
        key = blake2b(test.nodeid.encode("utf-8", "replace"), digest_size=12).digest()
        known = self._worst.get(key)
        if known is TestOutcome.FAILED and outcomes == [TestOutcome.ERROR]:
            self._reports -= 1  # pytest counts a test that failed twice once
        elif outcomes == [TestOutcome.ERROR] and test.reason == "teardown":
            self._reports += 1  # pytest also counts its passed call
        if known is TestOutcome.PASSED:
            self._reports -= 1  # an earlier try, which pytest does not count
            self._cases -= 1
        self._count(key, known, test.outcome)

    def _count(self, key: bytes, known: TestOutcome | None, outcome: TestOutcome) -> None:
        worst = outcome if known is None else max(known, outcome)
        if known is not None:
            self._outcomes[known.word] -= 1
        self._outcomes[worst.word] += 1
        if known is not None or len(self._worst) < _MOST_TESTS:
            self._worst[key] = worst

    def announced(self) -> Iterator[ParsedItem]:
        """Yield the number of tests that the suites declare, of a document without an end."""
        total = self._attribute("tests")
        if total is not None:
            yield ParsedTally("collected", max(total, self._outcomes.total()))

    def statements(self, *, is_pytest: bool, is_known: bool) -> Iterator[ParsedItem]:
        """Yield the sums, and a problem for each contradiction to the testcases.

        Args:
            is_pytest: whether pytest wrote the document.
            is_known: whether a problem already names the missing failures.
        """
        duration = as_seconds(self._root.get("time", "")) or self._sum_of_times()
        total = self._attribute("tests")
        if total is not None:
            if is_pytest:
                yield from self._contradictions(is_known=is_known)
                yield from self._tally_of_pytest(total, duration)
            else:
                yield ParsedTally("footer", total, self._counts(total), duration)
        yield ParsedEnd(duration_s=duration)

    def _contradictions(self, *, is_known: bool) -> Iterator[ParsedItem]:
        for word, name in _STATED.items():
            number, found = self._attribute(name), self._elements[word]
            is_again = is_known and word != "skipped" and (number or 0) > found
            if number is not None and number != found and not is_again:
                yield ParsedProblem("error", f"it says {number} {name}, but it contains {found}")

    def _tally_of_pytest(self, total: int, duration: float | None) -> Iterator[ParsedItem]:
        # pytest counts reports, not tests; the corrected sum is given in Seatrial's outcomes.
        more = min((total - self._reports, total - self._cases), key=abs)
        named = self._outcomes.total()
        yield ParsedTally("footer", named + more, dict(+self._outcomes), duration)
        if more > 0:
            yield ParsedNotice(
                f"pytest counts {more} more than it names: subtests that passed, or tests that "
                "were taken out of it; its log or reportlog beside it tells which"
            )

    def _counts(self, total: int) -> dict[str, int]:
        """Return counts by outcome; undeclared ones come from testcases, and the rest passed."""
        stated = {word: self._attribute(name) for word, name in _STATED.items()}
        stated["skipped"] = stated["skipped"] or self._attribute("disabled")
        counts = {w: self._outcomes[w] if n is None else n for w, n in stated.items()}
        if self._outcomes["xpassed"]:
            counts["xpassed"] = self._outcomes["xpassed"]
        return {**counts, "passed": max(total - sum(counts.values()), 0)}

    def _attribute(self, name: str) -> int | None:
        own = as_count(self._root.get(name, ""))
        if own is not None:
            return own
        numbers = [as_count(suite.get(name, "")) for suite in self._suites]
        known = [number for number in numbers if number is not None]
        return sum(known) if known else None

    def _sum_of_times(self) -> float | None:
        times = [as_seconds(suite.get("time", "")) for suite in self._suites]
        known = [time for time in times if time is not None]
        return sum(known) if known else None


def _words(outcome: TestOutcome, message: str, text: str) -> tuple[str, str, str]:
    """Return reason, message and text."""
    if outcome in (TestOutcome.SKIPPED, TestOutcome.XFAILED):
        if message == "collection skipped":
            message = skip_reason(text) or message
        return as_line(message) or as_line(text), "", ""
    if outcome is TestOutcome.ERROR and message == "collection failure":
        return "collection", last_error(text), text
    phase = _PHASE.match(message) if outcome is TestOutcome.ERROR else None
    if phase:
        return phase.group(1), as_line(phase.group(2)), text
    return "", as_line(message) or as_line(text), text


_OTHER_REPORT = " Captured other failure ".center(80, "-")
"""A heading in pytest's form: the text below it is not part of the traceback."""


def _together(one: ParsedTest, other: ParsedTest) -> ParsedTest:
    """Merge two testcases of one test.

    Either the test and its teardown failed, or the test was retried: a try before another one has
    an empty testcase. The text of the worse outcome comes first, because the failure's signature is
    made of it, as with the agent's records.
    """
    if one.outcome is TestOutcome.PASSED:
        one = replace(one, earlier=(*one.earlier, TestOutcome.FAILED))
    worse, lesser = (other, one) if other.outcome > one.outcome else (one, other)
    text = f"\n{_OTHER_REPORT}\n".join(part for part in (worse.text, lesser.text) if part)
    known = [t.duration_s for t in (one, other) if t.duration_s is not None]
    return replace(
        worse,
        text=as_text(text),
        duration_s=sum(known) if known else None,
        earlier=(*worse.earlier, *lesser.earlier)[:100],
    )


_PYTEST_SUITES = {"pytest", "pytest tests"}
_MODULE = re.compile(r"test_\w+|\w+_test")
_DOTTED = re.compile(r"\w[\w-]*(?:\.\w[\w-]*)+")
_TEXT_FILE = re.compile(r"[^/\[\]:]+\.(?:rst|txt|md)")
_DEEPEST_MODULE = 50
_ILLEGAL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class JunitTestIds:
    """Derives the ids of the testcases of one document."""

    def __init__(self) -> None:
        self.is_pytest = False
        self._seen_texts: Counter[bytes] = Counter()

    def see_suite(self, name: str) -> None:
        """Detect the writer of the document from a suite's name."""
        self.is_pytest = self.is_pytest or name in _PYTEST_SUITES

    def nodeid(self, attributes: Mapping[str, str], suite: str) -> str:
        """Return the id of a testcase."""
        classname, name = _clean(attributes.get("classname")), _clean(attributes.get("name"))
        file = _clean(attributes.get("file")).replace("\\", "/").removeprefix("./")
        if self.is_pytest or _looks_like_python(classname, name, file):
            self.is_pytest = self.is_pytest or file.endswith(".py")
            return shortened(pytest_nodeid(classname, name, file), LINE_LIMIT)
        group = classname or _clean(suite)
        nodeid = shortened(f"{group}::{name}" if group else name or "?", LINE_LIMIT)
        return self._unique(nodeid)

    def _unique(self, nodeid: str) -> str:
        digest = blake2b(nodeid.encode("utf-8", "replace"), digest_size=12).digest()
        self._seen_texts[digest] += 1
        number = self._seen_texts[digest]
        return nodeid if number == 1 else f"{nodeid}#{number}"


def pytest_nodeid(classname: str, name: str, file: str = "") -> str:
    """Return the node id that pytest's ``classname`` and ``name`` were made from."""
    if not classname:
        return _path(name) if _DOTTED.fullmatch(name) or not file else file or name
    module, classes = _split(classname, name, file)
    return "::".join([module, *classes, name])


def _split(classname: str, name: str, file: str) -> tuple[str, list[str]]:
    parts = classname.split(".")
    dotted = re.sub(r"\.py$", "", file).replace("/", ".")
    if file and (classname == dotted or classname.startswith(f"{dotted}.")):
        return file, classname[len(dotted) + 1 :].split(".") if classname != dotted else []
    if _TEXT_FILE.fullmatch(name) and f".{classname}".endswith(f".{name}"):
        return classname[: -len(name)].replace(".", "/") + name, []
    if _is_doctest(parts, name.split("[")[0].split(".")):
        return _path(classname), []
    last = _module_end(parts)
    return _path(".".join(parts[:last])), parts[last:]


def _is_doctest(module: list[str], name: list[str]) -> bool:
    """Return whether a name begins with its module's end: ``pkg.mod.f`` in ``src.pkg.mod``."""
    longest = min(len(module), len(name), _DEEPEST_MODULE)
    return len(name) > 1 and any(module[-n:] == name[:n] for n in range(1, longest + 1))


def _module_end(parts: list[str]) -> int:
    """Return the number of parts that belong to the module's path."""
    found = [n for n, part in enumerate(parts, 1) if _MODULE.fullmatch(part)]
    if found:
        return found[-1]
    small = (n for n, part in enumerate(parts, 1) if not part[:1].isupper())
    return max(small, default=1)  # classes have capitals, and are the last parts


def _path(dotted: str) -> str:
    return dotted.replace(".", "/") + ".py"


def _looks_like_python(classname: str, name: str, file: str) -> bool:
    if file.endswith(".py"):
        return True
    parts = classname.split(".")
    if len(parts) < 2 or not _DOTTED.fullmatch(classname):
        return False
    return any(_MODULE.fullmatch(p) for p in parts[-3:]) and name.startswith("test")


def _clean(text: str | None) -> str:
    return _ILLEGAL.sub("\ufffd", (text or "")[: 2 * LINE_LIMIT])

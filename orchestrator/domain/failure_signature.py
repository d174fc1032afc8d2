"""Signatures of failures, and failure groups by signature."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failures import (
    CAUSES,
    EXPECTATIONS,
    LAMBDA,
    FailureClass,
    Raised,
    classify,
    read_raised,
)
from orchestrator.domain.grouping import grouped
from orchestrator.domain.node_ids import take_apart
from orchestrator.domain.outcome import TestOutcome

SIGNATURE_VERSION = 1
"""Version of the algorithm.

Increase it with every change of signatures after the first release, so that the stored ones are
recomputed.
"""
BAD = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})
"""Outcomes that have a signature."""
SIMILAR = 90.0
"""Minimum similarity (0 to 100) of masked messages that may be of the same failure."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The stable fingerprint of a failure."""

    id: str
    """The algorithm's version and a digest of the other fields, such as ``s1-0123456789ab``."""
    kind: FailureClass
    """Probable origin of the failure; only a hint."""
    exception: str
    """The exception's class, without its module."""
    frame: str
    """``package.module.function`` of the product's last frame.

    If the failure is specific to its test, the node id without parameters. Empty if it is
    unknown.
    """
    message: str
    """One line with variable parts masked, and the exceptions that led to it."""

    def __str__(self) -> str:
        where = f" at {self.frame}" if self.frame else ""
        said = f": {self.message}" if self.message else ""
        return f"{self.exception or 'failure'}{where}{said}"


_ID = re.compile(r"s\d{1,3}-[0-9a-f]{12}")


def is_signature_id(text: str) -> bool:
    """Whether a text has the form of a signature's id; none is a pattern."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failing result with its run and cell."""

    signature: Signature
    nodeid: str
    job: str
    run_id: str
    cell: str
    platform: str
    version: str
    """Version of the subject."""
    at: datetime
    """Launch time of the run, or its stated time."""
    message: str = ""
    """The whole message, with its numbers and addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedFailures:
    """The failing results of one signature, without their tests."""

    signature: Signature
    count: int
    """Number of failing results; one test on two platforms counts twice."""
    jobs: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    """Names of the cells, if the groups are of one run."""
    platforms: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    """Versions of the subject."""
    runs: int = 1
    """Number of runs with this failure."""
    first_seen: datetime | None = None
    """Time of the first of all stored results; None if it is not known."""
    last_seen: datetime | None = None
    similar: tuple[str, ...] = ()
    """Ids of similar signatures; only a suggestion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup(GroupedFailures):
    """The failing results of one signature, with their tests."""

    tests: tuple[str, ...] = ()
    """Distinct node ids."""
    message: str = ""
    """First line of the message of one of the results, with its numbers and addresses."""
    test_count: int = 0
    """Number of distinct node ids."""
    known_issues: tuple[str, ...] = ()
    """Ids of known issues that apply to at least one of its results."""
    quarantines: tuple[str, ...] = ()
    """Ids of active quarantines that cover at least one of its results."""
    tolerated: int = 0
    """Number of results that a known issue or a quarantine covers; they stay failed in every count.
    """

    @property
    def excuses(self) -> str:
        """What covers its results: ``KI-0001, Q-0001 (3 of them)``; empty if nothing does."""
        ids = ", ".join((*self.known_issues, *self.quarantines))
        is_part = bool(ids) and self.tolerated < self.count
        return f"{ids} ({self.tolerated} of them)" if is_part else ids


@dataclass(frozen=True, slots=True)
class FailureGroupListResponse:
    """The failure groups of one or several runs, largest group first."""

    items: tuple[FailureGroup, ...]
    runs: int
    """Number of runs."""
    is_cut: bool
    """Whether there were more failures than the limit, so that only those of the newest runs are
    listed."""


def signature_of(fact: TestFact, imports: Collection[str] = ()) -> Signature | None:
    """Return the signature of a failing test; None if the test did not fail.

    Args:
        fact: The test's result.
        imports: Import names of the installed product (`subject_imports`); may be empty.
    """
    if fact.outcome not in BAD:
        return None
    raised = read_raised(
        fact.text, fact.message, nodeid=fact.nodeid, reason=fact.reason, imports=imports
    )
    kind = classify(raised, fact.reason)
    frame = raised.frame
    if kind in (FailureClass.INFRA, FailureClass.ENVIRONMENT):
        frame = ""  # a machine fault can strike at any line
    elif _is_of_its_test(raised, fact.nodeid, is_product_known=bool(imports)):
        frame = take_apart(fact.nodeid).without_parameters
    message = mask_variable_parts(raised.message)
    if raised.causes:
        message = f"{message} (from {', '.join(raised.causes)})".lstrip()
    return make_signature(kind, raised.exception, frame, message)


_SAYS_LITTLE = EXPECTATIONS | {"", *CAUSES}
"""Exceptions that unrelated failures share: many tests fail with ``assert <n> == <n>``, even in a
shared function."""


_SERVES_TESTS = re.compile(r"(?:^|\.)_{0,2}test(?:s|ing|_?util(?:s|ities)?|_?helpers?)?\.")
"""Modules of a product with which tests are written, such as ``numpy.testing``."""


def _is_of_its_test(raised: Raised, nodeid: str, *, is_product_known: bool) -> bool:
    """Whether the signature of a failure needs the name of its test.

    One known issue must not excuse unrelated failures of several tests. A frame without its
    folder and its class would be the same in tests of the same name.
    """
    if raised.frame.endswith(f".{LAMBDA}"):
        return True  # lambdas of a module have one name
    if raised.exception in _SAYS_LITTLE:
        in_product = raised.is_own and is_product_known
        return not in_product or _SERVES_TESTS.search(raised.frame) is not None
    return not raised.is_own and raised.frame.endswith(f".{take_apart(nodeid).function}")


def subject_imports(environment: Mapping[str, object]) -> tuple[str, ...]:
    """Return the import names of the installed subject; empty if they are unknown."""
    found = environment.get("subject_imports")
    return tuple(str(name) for name in found) if isinstance(found, list | tuple) else ()


def make_signature(kind: FailureClass, exception: str, frame: str, message: str) -> Signature:
    """Return the signature of the current version that consists of these parts."""
    whole = "\x00".join((exception, frame, message)).encode("utf-8", "replace")
    digest = hashlib.sha256(whole).hexdigest()[:12]
    return Signature(f"s{SIGNATURE_VERSION}-{digest}", kind, exception, frame, message)


def failure_groups(
    failures: Iterable[Failure], spans: Mapping[str, tuple[datetime, datetime]] | None = None
) -> tuple[FailureGroup, ...]:
    """Return the failures grouped by signature, largest group first.

    Args:
        failures: The failures, in any order.
        spans: Times of the first and the last stored result, by signature id.
    """
    gathered = grouped((failure.signature.id, failure) for failure in failures)
    made = [_group(some, (spans or {}).get(name)) for name, some in gathered.items()]
    return tuple(sorted(made, key=lambda c: (-c.count, c.signature.id)))


def _group(some: Sequence[Failure], span: tuple[datetime, datetime] | None) -> FailureGroup:
    times = [failure.at for failure in some]
    first, last = span or (min(times), max(times))
    shown = min(some, key=lambda one: (one.nodeid, one.cell, one.job, one.run_id))
    return FailureGroup(
        signature=shown.signature,
        count=len(some),
        message=_first_line(shown),
        tests=tuple(sorted({f.nodeid for f in some})),
        test_count=len({f.nodeid for f in some}),
        jobs=tuple(sorted({f.job for f in some})),
        cells=tuple(sorted({f.cell for f in some})),
        platforms=tuple(sorted({f.platform for f in some})),
        versions=tuple(sorted({f.version for f in some})),
        runs=len({f.run_id for f in some}),
        first_seen=min(first, *times),
        last_seen=max(last, *times),
    )


def _first_line(failure: Failure) -> str:
    """Return the first line of a message without the exception, at most 200 characters."""
    line = failure.message.strip().partition("\n")[0]
    line = line.removeprefix("E ").strip()  # of pytest's traceback
    return line.removeprefix(f"{failure.signature.exception}: ")[:200]


def similar(
    signatures: Sequence[Signature], alike: Callable[[str, str], float]
) -> dict[str, tuple[str, ...]]:
    """Return the ids of similar signatures by signature id; only a suggestion.

    Args:
        signatures: The signatures; only those of one exception class are compared.
        alike: Returns the similarity (0 to 100) of two masked messages.
    """
    near: dict[str, list[str]] = {one.id: [] for one in signatures}
    by_exception: dict[str, list[Signature]] = {}
    for one in signatures:
        for other in by_exception.get(one.exception, ()):
            if one.message and other.message and alike(one.message, other.message) >= SIMILAR:
                near[one.id].append(other.id)
                near[other.id].append(one.id)
        if len(by_exception.setdefault(one.exception, [])) < _COMPARED:
            by_exception[one.exception].append(one)
    return {name: tuple(sorted(ids)) for name, ids in near.items() if ids}


_COMPARED = 200
"""Maximum number of signatures of one exception class that are compared."""


_READ = 2_000
"""Maximum number of characters of a message that are read."""
_KEPT = 300
"""Maximum number of characters of a masked message."""

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), mask_variable_parts)
    for pattern, mask_variable_parts in (
        (
            r"(?:\x1b|#x1B)\[[\d;]*[A-Za-z]",
            "",
        ),  # a colour: an escape sequence, or pytest's form of it in XML
        (r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]|#x(?:[0189][\dA-F]|7F)", ""),
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+", "<url>"),
        (
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b",
            "<time>",
        ),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b0x[0-9a-fA-F]+\b", "<addr>"),
        (r"(?<![\w/.])[A-Za-z]:\\[\w .\\@+~-]+", "<path>"),
        (r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@+~=-]+){2,}/?", "<path>"),
        (r"(?<![\w/.-])[\w.-]++(?:/[\w.@+~=-]+){2,}", "<path>"),
        (r"(?<![\w/.-])[\w.-]++/[\w.-]*\.[A-Za-z]\w*", "<path>"),
        (r"\b(cuda|xpu|hpu|mps|xla|tpu|gpu|npu|cpu):\d+\b", r"\1:<n>"),
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b", "<hex>"),
        (r"(?<![A-Za-z_])\d+(?:x\d+)+", "<n>"),
        (r"(?<![A-Za-z_\d.])[-+]?\d[\d_]*(?:\.\d*)*(?:[eE][-+]?\d+)?", "<n>"),
        (r"<n>(?:\s*[,x]\s*<n>)+", "<n>"),
        (r"\s+", " "),
    )
)


def mask_variable_parts(message: str) -> str:
    """Return the first line of the message, with its variable parts masked."""
    line = message.strip().split("\n", 1)[0][:_READ]
    for pattern, mark in _MASKS:
        line = pattern.sub(mark, line)
    line = line.strip()
    return line if len(line) <= _KEPT else line[: _KEPT - 1] + "\N{HORIZONTAL ELLIPSIS}"

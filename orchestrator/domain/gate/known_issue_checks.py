"""What makes a known issue of a policy senseless."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.domain.gate.excuse_terms import longest_exception
from orchestrator.domain.gate.policy import GatePolicy, PolicyIssue
from orchestrator.domain.gate.quantities import like
from orchestrator.domain.known_issue import IssueMatch, lacking_limits, split_requirement
from orchestrator.domain.problems import Path, Problem, nearest
from orchestrator.domain.versions import is_version_range

_PATH: Path = ("spec", "known_issues")


def issue_problems(policy: GatePolicy) -> Iterator[Problem]:
    """Known issues that mean nothing, everything, or what cannot be."""
    issues = policy.spec.known_issues
    ids = [*(one.id for one in issues), *(one.id for one in policy.spec.exceptions)]
    platforms = [rule.id for rule in policy.spec.platforms]
    for index, one in enumerate(issues):
        if ids.count(one.id) > 1:
            yield Problem((*_PATH, index, "id"), f"{one.id!r} stands here twice")
        for problem in (*_words(one), *_life(one, policy), *_meant(one), *_scope(one, platforms)):
            yield Problem((*_PATH, index, *problem.path), problem.message)


def _words(one: PolicyIssue) -> Iterator[Problem]:
    for key in ("id", "title", "owner"):
        if not getattr(one, key).strip():
            yield Problem((key,), "must not be empty")
    if one.expires < one.opened:
        yield Problem(("expires",), f"{one.expires} is before it was opened, on {one.opened}")
    if one.max_failures is not None and one.max_failures < 1:
        yield Problem(("max_failures",), "must be at least 1")


def _life(one: PolicyIssue, policy: GatePolicy) -> Iterator[Problem]:
    try:
        longest = longest_exception(policy)
    except ValueError:
        return  # told where it stands
    if one.expires - one.opened > longest:
        days = f"{one.expires} is {(one.expires - one.opened).days} days after it was opened"
        yield Problem(("expires",), f"{days}: `exception_max_age` allows {longest.days}")


def _meant(one: PolicyIssue) -> Iterator[Problem]:
    if one.match == IssueMatch():
        message = "says nothing: name a signature, an exception, a frame or text"
        yield Problem(("match",), message)
    lacking = lacking_limits(one.scope, one.max_failures)
    for path, is_wide in (
        ("match", one.match.is_anything),
        ("without_signature", one.without_signature == "allowed"),
    ):
        if lacking and is_wide:
            yield Problem((path,), f"would tolerate anything: say {', '.join(lacking)}")


def _scope(one: PolicyIssue, platforms: list[str]) -> Iterator[Problem]:
    path: Path = ("scope",)
    for index, pattern in enumerate(one.scope.platforms):
        if not any(like(pattern, name) for name in platforms):
            hint = nearest(pattern, platforms)
            message = f"the policy names no platform {pattern!r}{hint}"
            yield Problem((*path, "platforms", index), message)
    if not is_version_range(one.scope.versions):
        message = "must be a range such as >=0.4.6,<0.5 or ==0.4.*"
        yield Problem((*path, "versions"), message)
    package, versions = split_requirement(one.scope.requires_package)
    if one.scope.requires_package and (not package or not is_version_range(versions)):
        yield Problem((*path, "requires_package"), "must be a name, or as in name>=1.2")

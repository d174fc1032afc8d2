"""Checks of a policy that matches the schema: problems and warnings, each with advice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal

from orchestrator.domain.caller_identity import name_fault, person_key
from orchestrator.domain.document_problems import Path, Problem, nearest
from orchestrator.domain.failure_signature import is_signature_id
from orchestrator.domain.gate.exception_terms import longest_exception
from orchestrator.domain.gate.exceptions import UNBOUND, Exemption
from orchestrator.domain.gate.policy import (
    GateException,
    GatePolicy,
    JobRule,
    PerformanceRule,
    PlatformRule,
    PolicyIssue,
    counted,
    duration,
    is_pattern,
    like,
    percent,
    some,
)
from orchestrator.domain.gate.rule_context import RuleContext, RuledJob, is_bad, rule_fault
from orchestrator.domain.gate.snapshot import Quarantine
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.known_issue import (
    NO_SIGNATURE,
    CellScope,
    IssueMatch,
    IssueState,
    IssueUse,
    lacking_limits,
    split_requirement,
    uses,
    with_tests,
)
from orchestrator.domain.manifest import IDENTIFIER, UNTRUSTED
from orchestrator.domain.money import CENT_OF_CENT, TOO_SMALL
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.versions import is_version_range

_WRITTEN = 5
"""Maximum number of items that a warning lists."""


def warnings(
    context: RuleContext, results: Sequence[RuleResult], known: Sequence[Exemption]
) -> tuple[str, ...]:
    """Return the warnings of a verdict in a fixed order, without repetitions."""
    found = (
        *_issues(context),
        *_quarantines(context),
        *_excuses(context, {result.id: result for result in results}, known),
        *_unnamed_platforms(context),
    )
    return tuple(dict.fromkeys(found))


_FITS_NOTHING = (IssueState.STALE, IssueState.UNMATCHED)
_OVER = (IssueState.EXPIRED, IssueState.ENDED)


def _issues(context: RuleContext) -> Iterator[str]:
    """Yield warnings about known issues that are too old, are over or match no failure."""
    used = context.tolerance.used
    failing = [one.failing for one in context.tolerance.results]
    failures = [one.failure(context.now) for one in failing if one.test]
    ran = [one for platform in context.platforms for one in _ran(list(platform.jobs))]
    mine = {one.id for one in context.policy.spec.known_issues}
    told = uses(context.tolerance.issues, failures, ran, on=context.now.date())
    if context.snapshot.issue_tests is not None:
        told = with_tests(told, context.snapshot.issue_tests)
    for use in told:
        fault = context.terms.age_fault(context.policy, use.issue.opened, context.now.date())
        if fault and use.state not in _OVER:
            if use.issue.id in mine or use.count:
                yield f"{use.issue.id} ({use.issue.title}) does not count: {fault}."
        elif use.state in _OVER and (use.issue.id in mine or use.count):
            yield _over(use)
        elif use.state in _FITS_NOTHING and not used.get(use.issue.id):
            end = f"`seatrial known-issue expire {use.issue.id}` ends it"
            yield (
                f"{use.issue.id} ({use.issue.title}) is a stale exception: what it is about ran, "
                f"and nothing failed so. {'Delete it' if use.issue.id in mine else end}."
            )


def _over(use: IssueUse) -> str:
    issue, fitting = use.issue, counted(use.count, "failing result")
    if issue.ended_at is not None:
        return f"{issue.id} was ended by {issue.ended_by or 'a person'}; {fitting} would fit it."
    days = counted(use.expired_days, "day")
    return (
        f"{issue.id} ({issue.title}) expired {days} ago, on {issue.expires}; {fitting} would fit."
    )


def _ran(jobs: list[RuledJob]) -> Iterator[CellScope]:
    for cell in {id(one.cell): one.cell for one in jobs}.values():
        names = tuple(one.job.id for one in jobs if one.cell is cell and _has_run(one))
        version = cell.subject.get("version", "")
        yield CellScope(cell.id, cell.platform, version, names, cell.packages)


def _has_run(ruled_job: RuledJob) -> bool:
    counts = ruled_job.job.counts
    ended = ruled_job.job.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
    only = counts.collected == counts.skipped + counts.missing + counts.not_run
    return ended and not (counts.collected and only)


def _quarantines(context: RuleContext) -> Iterator[str]:
    """Yield warnings about quarantines that are over and whose tests fail."""
    runs: dict[str, set[str]] = {}
    for result in context.tolerance.results:
        if result.failing.test:
            runs.setdefault(result.failing.test.quarantine, set()).add(result.run)
    for one in sorted(context.snapshot.quarantines, key=lambda one: one.id):
        fault = _quarantine_fault(context, one)
        if one.id in runs and fault:
            fails = _fails(context, runs[one.id])
            yield f"{one.nodeid} {fails}; its quarantine {one.id} {fault}."


def _fails(context: RuleContext, runs: set[str]) -> str:
    """Return where a quarantined test failed; ``fails`` by older rules or without the run's id."""
    if "" in runs or not context.terms.explained:
        return "fails"
    return f"failed in {some(sorted(runs))}, and not in this evidence"


def _quarantine_fault(context: RuleContext, one: Quarantine) -> str:
    """Return why a quarantine excuses nothing; empty if it is active."""
    if one.ended_at is not None:
        return f"ended: {one.ended_by or 'by hand'}"
    if context.now >= one.expires:
        return f"expired {counted((context.now - one.expires).days, 'day')} ago"
    fault = _age_fault(context, one)
    return f"does not count: {fault}" if fault else ""


def _age_fault(context: RuleContext, one: Quarantine) -> str:
    return context.terms.age_fault(context.policy, one.opened.date(), context.now.date())


def _excuses(
    context: RuleContext, results: Mapping[str, RuleResult], known: Sequence[Exemption]
) -> Iterator[str]:
    """Yield warnings about unused exceptions, and about needed waivers that do not count."""
    written = {one.id for one in context.policy.spec.exceptions}
    for one in known:
        result = results.get(one.rule)
        needed = result is not None and (is_bad(result) or result.outcome is RuleOutcome.WAIVED)
        if one.fault and one.fault != UNBOUND and (needed or one.id in written):
            yield f"{one.id} does not count: {one.fault}."
        elif needed and result is not None and not result.waivable:
            yield f"{one.id} does not count: nothing can waive {one.rule}."
        elif not needed and one.id in written:
            yield f"{one.id} is not needed: {one.rule} {'is ok' if result else 'says nothing'}."
        elif needed and result is not None and one.fault == UNBOUND:
            yield f"{one.id} does not count: {one.fault}; {_remedy(result)}."


def _remedy(result: RuleResult) -> str:
    """Return what to write into an exception that lists no failing items."""
    if len(result.failing) > _WRITTEN:
        return f"copy `failing` of {result.id} from `seatrial gate explain --json` into it"
    told = json.dumps(dict(result.failing), ensure_ascii=False)
    return f"to excuse what is bad now, write `failing: {told}` into it"


def _unnamed_platforms(context: RuleContext) -> Iterator[str]:
    named = {rule.id for rule in context.policy.spec.platforms}
    named |= {
        rule.when_unavailable.substitute.platform
        for rule in context.policy.spec.platforms
        if rule.when_unavailable.substitute
    }
    others = sorted({cell.platform for cell in context.snapshot.cells} - named)
    if others:
        yield f"The policy does not name {some(others)}: what ran there is not looked at."


_PERFORMANCE: Path = ("spec", "performance")
LEAST_PAIRS = 3
LARGEST_LEVEL = 0.2
"""Maximum of alpha and of the false discovery rate."""


def performance_problems(policy: GatePolicy) -> Iterator[Problem]:
    """Yield problems of the rule on benchmarks: its budgets, its number of pairs, its levels."""
    rule = policy.spec.performance
    if rule is None:
        return
    if not rule.budgets:
        yield Problem((*_PERFORMANCE, "budgets"), "name at least one budget, or leave the rule out")
    for index in range(len(rule.budgets)):
        yield from _budget(rule, index)
    if rule.min_pairs < LEAST_PAIRS:
        yield Problem((*_PERFORMANCE, "min_pairs"), f"must be at least {LEAST_PAIRS}")
    for key in ("alpha", "fdr"):
        if not 0 < getattr(rule, key) <= LARGEST_LEVEL:
            yield Problem((*_PERFORMANCE, key), f"must be more than 0 and at most {LARGEST_LEVEL}")


def _budget(rule: PerformanceRule, index: int) -> Iterator[Problem]:
    path, budget = (*_PERFORMANCE, "budgets", index), rule.budgets[index]
    job, slash, metric = budget.match.partition("/")
    if not slash or not metric or not IDENTIFIER.fullmatch(job.replace("*", "x")):
        yield Problem((*path, "match"), f"{budget.match!r} fits no benchmark: write JOB/METRIC")
    try:
        if not 0 < percent(budget.max_regression) < 1:
            said = f"{budget.max_regression!r} must be more than 0% and less than 100%"
            yield Problem((*path, "max_regression"), said)
    except ValueError as error:
        yield Problem((*path, "max_regression"), str(error))
    for other in rule.budgets[:index]:
        same = other.match == budget.match
        if same or (is_pattern(other.match) and like(other.match, budget.match)):
            message = f"never counts: {other.match!r} above it fits the same, and comes first"
            yield Problem((*path, "match"), message)
            break


_PATH: Path = ("spec", "known_issues")


def issue_problems(policy: GatePolicy) -> Iterator[Problem]:
    """Yield problems of known issues that match nothing, everything, or what cannot occur."""
    issues = policy.spec.known_issues
    ids = [*(one.id for one in issues), *(one.id for one in policy.spec.exceptions)]
    platforms = [rule.id for rule in policy.spec.platforms]
    for index, one in enumerate(issues):
        if ids.count(one.id) > 1:
            yield Problem((*_PATH, index, "id"), f"{one.id!r} occurs twice")
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
        return  # another check reports it
    if one.expires - one.opened > longest:
        days = f"{one.expires} is {(one.expires - one.opened).days} days after it was opened"
        yield Problem(("expires",), f"{days}: `exception_max_age` allows {longest.days}")


def _meant(one: PolicyIssue) -> Iterator[Problem]:
    if one.match == IssueMatch():
        message = "says nothing: name a signature, an exception, a frame or text"
        yield Problem(("match",), message)
    signature = one.match.signature
    if signature and not is_signature_id(signature):
        yield Problem(("match", "signature"), NO_SIGNATURE.format(signature))
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


_NO_NAME = "{!r} must be letters, digits, '-' and '_' (at most 64)"
MOST_RERUNS = 10


def check_policy(policy: GatePolicy) -> tuple[Problem, ...]:
    """Return every problem of the policy, with rules that can never apply."""
    return tuple(problem for check in _CHECKS for problem in check(policy))


def _metadata(policy: GatePolicy) -> Iterator[Problem]:
    told = policy.metadata
    if not IDENTIFIER.fullmatch(told.name):
        yield Problem(("metadata", "name"), _NO_NAME.format(told.name))
    for key in ("product", "owner"):
        if not getattr(told, key).strip():
            yield Problem(("metadata", key), "must not be empty")
    if told.product.startswith(UNTRUSTED):
        yield Problem(("metadata", "product"), "results of untrusted code satisfy no gate")


def _platforms(policy: GatePolicy) -> Iterator[Problem]:
    path: Path = ("spec", "platforms")
    rules = policy.spec.platforms
    if not any(rule.level == "blocking" for rule in rules):
        yield Problem(path, "at least one platform must be blocking: nothing could fail or pass")
    yield from _repeated((*path,), [rule.id for rule in rules], "platforms")
    for index, rule in enumerate(rules):
        if not IDENTIFIER.fullmatch(rule.id):
            yield Problem((*path, index, "id"), _NO_NAME.format(rule.id))
        if rule.consecutive_green < 1:
            yield Problem((*path, index, "consecutive_green"), "must be at least 1")
        if rule.instance and rule.expect.instance:
            message = "says the same as `instance` above it: keep one of them"
            yield Problem((*path, index, "expect", "instance"), message)
        for problem in _unavailable(rule, policy):
            yield Problem((*path, index, "when_unavailable", *problem.path), problem.message)


def _unavailable(rule: PlatformRule, policy: GatePolicy) -> Iterator[Problem]:
    told = rule.when_unavailable
    known = {one.id: one for one in policy.spec.exceptions}
    if told.exception and told.verdict != "exception":
        yield Problem(("exception",), "has no use without `verdict: exception`")
    elif told.exception and told.exception not in known:
        hint = nearest(told.exception, known)
        yield Problem(("exception",), f"there is no exception {told.exception!r}{hint}")
    elif told.exception and known[told.exception].rule != f"platform/{rule.id}":
        message = f"{told.exception} is for {known[told.exception].rule!r}, not platform/{rule.id}"
        yield Problem(("exception",), message)
    if told.substitute is not None and told.substitute.platform == rule.id:
        yield Problem(("substitute", "platform"), "a platform is no substitute for itself")


def _jobs(policy: GatePolicy) -> Iterator[Problem]:
    platforms = [rule.id for rule in policy.spec.platforms]
    for index, rule in enumerate(policy.spec.jobs):
        path: Path = ("spec", "jobs", index)
        if not IDENTIFIER.fullmatch(rule.id.replace("*", "x")):
            yield Problem((*path, "id"), f"{rule.id!r} fits no job: {_NO_NAME.format(rule.id)}")
        if not rule.on:
            yield Problem((*path, "on"), "name at least one platform, or `all`")
        for position, name in enumerate(() if rule.on == "all" else rule.on):
            if name not in platforms:
                hint = nearest(name, [*platforms, "all"])
                yield Problem((*path, "on", position), f"the policy names no {name!r}{hint}")
        hiding = _hiding(policy.spec.jobs[:index], rule)
        if hiding is not None:
            message = f"never counts: {hiding.id!r} above it fits the same jobs, and comes first"
            yield Problem((*path, "id"), message)


def _hiding(before: Sequence[JobRule], rule: JobRule) -> JobRule | None:
    """Return an earlier rule that matches every job and platform of the rule; None without one."""
    for other in before:
        on_all = other.on == "all" or (rule.on != "all" and set(rule.on) <= set(other.on))
        fits = other.id == rule.id or (is_pattern(other.id) and like(other.id, rule.id))
        if on_all and fits:
            return other
    return None


def _evidence(policy: GatePolicy) -> Iterator[Problem]:
    path: Path = ("spec", "evidence")
    rule = policy.spec.evidence
    yield from _parsed((*path, "max_age"), rule.max_age, duration)
    part = rule.manifest.min_tests_vs_baseline
    if part is not None and not 0 < part <= 1:
        message = "must be more than 0 and at most 1: a part of what the last green run collected"
        yield Problem((*path, "manifest", "min_tests_vs_baseline"), message)
    given_up = rule.manifest.removed_tests
    for index, pattern in enumerate(() if isinstance(given_up, str) else given_up):
        if not pattern.strip("* "):
            message = "gives up every test: say `removed_tests: allowed`"
            yield Problem((*path, "manifest", "removed_tests", index), message)


def _limits(policy: GatePolicy) -> Iterator[Problem]:
    spec = policy.spec
    if spec.skips is not None:
        yield from _least(("spec", "skips", "max"), spec.skips.max, 0)
        for index, reason in enumerate(spec.skips.allow_reasons):
            if not reason.strip():
                yield Problem(("spec", "skips", "allow_reasons", index), "must not be empty")
    if spec.new_failures is not None:
        yield from _least(("spec", "new_failures", "max"), spec.new_failures.max, 0)
    if spec.cost is not None and spec.cost.max_usd <= 0:
        yield Problem(("spec", "cost", "max_usd"), "must be more than 0")
    elif spec.cost is not None and spec.cost.max_usd < CENT_OF_CENT:
        yield Problem(("spec", "cost", "max_usd"), TOO_SMALL)
    path: Path = ("spec", "exception_max_age")
    yield from _parsed(path, spec.exception_max_age, _whole_days)
    if spec.approvals is not None:
        yield from _least(("spec", "approvals", "need"), spec.approvals.need, 1)


def _whole_days(text: str) -> timedelta:
    if not duration(text).days:
        raise ValueError("must be at least 1d: exceptions are given by the day")
    return duration(text)


def _flaky(policy: GatePolicy) -> Iterator[Problem]:
    rule, path = policy.spec.flaky, ("spec", "flaky")
    if not 0 <= rule.reruns <= MOST_RERUNS:
        yield Problem((*path, "reruns"), f"must be from 0 to {MOST_RERUNS}")
    yield from _least((*path, "max"), rule.max, 0)
    if rule.max > 0 and rule.rerun_success != "flaky":
        yield Problem((*path, "max"), "has no use without `rerun_success: flaky`")


def _diagnosis(policy: GatePolicy) -> Iterator[Problem]:
    rule, path = policy.spec.diagnosis, ("spec", "diagnosis")
    yield from _least((*path, "max_tests"), rule.max_tests, 1)
    for key in ("max_minutes", "confirmation_usd"):
        value: Decimal | float | None = getattr(rule, key)
        if value is not None and not value > 0:
            yield Problem((*path, key), "must be more than 0")


def _exceptions(policy: GatePolicy) -> Iterator[Problem]:
    path: Path = ("spec", "exceptions")
    rules = policy.spec.exceptions
    yield from _repeated(path, [rule.id for rule in rules], "exceptions")
    for index, rule in enumerate(rules):
        for problem in _exception(rule, policy):
            yield Problem((*path, index, *problem.path), problem.message)


def _exception(rule: GateException, policy: GatePolicy) -> Iterator[Problem]:
    for key in ("id", "reason"):
        if not getattr(rule, key).strip():
            yield Problem((key,), "must not be empty")
    fault = rule_fault(rule.rule, policy)
    if fault:
        yield Problem(("rule",), fault)
    if any(number < 1 for number in rule.failing.values()):
        yield Problem(("failing",), "must say of each how often it may be, at least 1")
    if {person_key(name) for name in rule.approved_by} <= {person_key(rule.author), ""}:
        yield Problem(("approved_by",), f"somebody other than {rule.author!r} must approve it")
    yield from _names(rule)


def ends_too_late(policy: GatePolicy, today: date) -> Iterator[Problem]:
    """Yield problems of exceptions that last longer than the policy allows."""
    longest = longest_exception(policy)
    for index, rule in enumerate(policy.spec.exceptions):
        if rule.expires - today > longest:
            days = f"{rule.expires} is {(rule.expires - today).days} days ahead"
            message = f"{days}: `exception_max_age` allows {longest.days}"
            yield Problem(("spec", "exceptions", index, "expires"), message)


def _names(rule: GateException) -> Iterator[Problem]:
    named: list[tuple[Path, str]] = [(("author",), rule.author)]
    named += [(("approved_by", index), name) for index, name in enumerate(rule.approved_by)]
    for path, name in named:
        if fault := name_fault(name):
            yield Problem(path, fault)


def _repeated(path: Path, ids: Sequence[str], what: str) -> Iterator[Problem]:
    for index, name in enumerate(ids):
        if ids.count(name) > 1:
            message = f"{name!r} is the id of {ids.count(name)} {what}"
            yield Problem((*path, index, "id"), message)


def _parsed(path: Path, text: str, parse: Callable[[str], timedelta]) -> Iterator[Problem]:
    try:
        value = parse(text)
    except ValueError as error:
        yield Problem(path, str(error))
    else:
        if not value:
            yield Problem(path, "must be more than 0")


def _least(path: Path, value: int | None, least: int) -> Iterator[Problem]:
    if value is not None and value < least:
        yield Problem(path, f"must be at least {least}")


_CHECKS: tuple[Callable[[GatePolicy], Iterator[Problem]], ...] = (
    _metadata,
    _platforms,
    _jobs,
    _evidence,
    _limits,
    _flaky,
    performance_problems,
    issue_problems,
    _exceptions,
    _diagnosis,
)

"""Rule on changed tests: every test of the baseline still exists, or the policy gives it up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.domain.gate.changes_of_tests import TestChanges, is_reported
from orchestrator.domain.gate.policy import ManifestRule, counted, like, some
from orchestrator.domain.gate.rule_context import PlatformEvidence, RuleContext, RuledJob
from orchestrator.domain.gate.snapshot import CellEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_MOST_LISTED = 20
_MOST_NAMED = 3


def changed_tests_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each job whose tests differ from the baseline's or cannot be compared."""
    for judged in context.jobs:
        changes = judged.job.changes
        if changes is not None and _is_compared(context, judged, changes):
            yield _result(judged, changes, context.policy.spec.evidence.manifest)
    for platform in context.platforms:
        for cell in platform.ran:
            yield from _absent(platform, cell, context.policy.spec.evidence.manifest)


def changed_tests(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of `changed_tests_v2`, with advice about missing tests."""
    for result in changed_tests_v2(context):
        is_lost = result.outcome is not RuleOutcome.OK and bool(result.inputs["removed"])
        yield replace(result, sentence=result.sentence + _REMEDY) if is_lost else result


_REMEDY = (
    " Where they are gone for good, the policy says so with `evidence: {manifest: {removed_tests:"
    " allowed}}` or names them; where they have another name, confirm it: `seatrial alias suggest`,"
    " `seatrial alias confirm`."
)


def _is_compared(context: RuleContext, ruled_job: RuledJob, changes: TestChanges) -> bool:
    """Whether tests are compared: ingested evidence may count tests without naming them."""
    allowed = context.policy.spec.evidence.attestation == "optional"
    if changes.unknown:
        return bool(changes.runs) and not (ruled_job.cell.ingested and allowed)
    return not changes.runs or bool(changes.removed or changes.renamed or changes.added)


def _result(ruled_job: RuledJob, changes: TestChanges, rule: ManifestRule) -> RuleResult:
    lost = _refused(changes.removed, rule)
    outcome = RuleOutcome.VIOLATED if lost else RuleOutcome.OK
    if changes.unknown:
        outcome = RuleOutcome.UNKNOWN
    return RuleResult(
        id=f"changed_tests/{ruled_job.name}",
        kind="changed_tests",
        # Facts such as added tests, or that there is no baseline, block nothing.
        blocking=ruled_job.blocking and outcome is not RuleOutcome.OK,
        outcome=outcome,
        sentence=f"{ruled_job.job.id} on {ruled_job.cell.id}: "
        f"{'; '.join(_sentences(ruled_job, changes, lost))}.",
        inputs={
            "baseline": list(changes.runs),
            "removed": len(changes.removed),
            "not_given_up": len(lost),
            "renamed": dict(list(changes.renamed.items())[:_MOST_LISTED]),
            "added": changes.added,
            "removed_tests": [*lost, *(x for x in changes.removed if x not in set(lost))][
                :_MOST_LISTED
            ],
            "added_tests": list(changes.added_names[:_MOST_LISTED]),
        },
        failing=dict.fromkeys(["tests without names"] if changes.unknown else lost, 1),
    )


def _sentences(ruled_job: RuledJob, changes: TestChanges, lost: Sequence[str]) -> Iterator[str]:
    job = ruled_job.job
    number = counted(job.counts.collected, "test")
    if not job.counts.collected and job.checks:
        number = counted(sum(job.checks.values()), "check")
    if not changes.runs:
        yield f"there is no green run to compare its {number} with, so none can be missed"
        return
    yield f"{number}, compared with run {some(list(changes.runs))}"
    if changes.unknown:
        yield "nobody knows their names"
    if lost:
        yield f"{len(lost)} removed: {some(list(lost), _MOST_NAMED)}"
    given_up = len(changes.removed) - len(lost)
    if given_up:
        yield f"{given_up} removed, which the policy gives up"
    if changes.renamed:
        pairs = [f"{old} is {new} now" for old, new in changes.renamed.items()]
        yield f"{len(pairs)} renamed: {some(pairs, _MOST_NAMED)}"
    if changes.added:
        yield f"{changes.added} added: {some(list(changes.added_names), _MOST_NAMED)}"


def _noun(names: Sequence[str]) -> str:
    return "result" if any(map(is_reported, names)) else "test"


def _refused(removed: Sequence[str], rule: ManifestRule) -> list[str]:
    """Return the removed tests that the policy does not give up."""
    return [name for name in removed if not rule.gives_up(name)]


def _absent(
    platform: PlatformEvidence, cell: CellEvidence, rule: ManifestRule
) -> Iterator[RuleResult]:
    """Yield a result for each job that has tests in the baseline and is absent in the cell.

    Left out are jobs that the policy names itself, jobs that need not run, and jobs whose tests the
    policy gives up.
    """
    for name, tests in sorted(cell.jobs_gone.items()):
        asked = next(each for each in platform.rules if like(each.id, name))
        lost = _refused(tests, rule)
        is_told = asked.id == name and asked is not platform.rules[-1]
        if not lost or is_told or asked.require == "pass_if_run":
            continue
        yield RuleResult(
            id=f"changed_tests/{name}@{cell.id}",
            kind="changed_tests",
            blocking=platform.blocking(cell) and asked.level == "blocking",
            outcome=RuleOutcome.UNKNOWN,
            sentence=(
                f"There is no job {name} on {cell.id}, of which the baseline has"
                f" {counted(len(lost), _noun(lost))}: {some(lost, _MOST_NAMED)}."
            ),
            inputs={
                "removed": len(tests),
                "not_given_up": len(lost),
                "removed_tests": lost[:_MOST_LISTED],
            },
            failing=dict.fromkeys(lost, 1),
        )

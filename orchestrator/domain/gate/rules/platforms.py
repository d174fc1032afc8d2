"""Rules on platforms: each platform of the policy ran to the end, on the required hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from orchestrator.domain.accelerators import ImpliedHardware
from orchestrator.domain.catalogue import promised, promised_v2
from orchestrator.domain.gate.policy import (
    PlatformRule,
    Substitute,
    all_counts,
    counted,
    first_rules_counts,
    some,
)
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    doubts,
    is_over,
    is_unavailable,
    platform_evidence,
    worst,
)
from orchestrator.domain.gate.snapshot import CellEvidence, MachineEvidence, Snapshot
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.matrix import (
    ANY,
    ExpectedHardware,
    HardwareDifference,
    differences,
    hardware_sentence,
    is_named,
)
from orchestrator.domain.outcome import Counts, Outcome


def hardware(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each cell that had a machine and has required hardware."""
    return _hardware_rules(context, promised)


def hardware_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of version 2, in which only some words of an id imply hardware."""
    return _hardware_rules(context, promised_v2)


def _hardware_rules(
    context: RuleContext, promise: Callable[[str], ImpliedHardware]
) -> Iterator[RuleResult]:
    allowed = context.policy.spec.evidence.attestation == "optional"
    for platform in context.platforms:
        known = promise(platform.rule.id)
        wanted = expected(platform.rule, known)
        count = 0 if platform.rule.expect.accelerator else known.count
        for cell in platform.ran:
            asked = [one for one in (wanted, cell.expect) if one != ExpectedHardware()]
            if asked and not (cell.ingested and allowed):
                yield _hardware(platform, cell, wanted, count)


def expected(rule: PlatformRule, known: ImpliedHardware) -> ExpectedHardware:
    """Return the required hardware: that of the policy, or else what the platform's id implies."""
    said = replace(
        rule.expect,
        provider=rule.expect.provider or known.provider,
        instance=rule.expect.instance or rule.instance,
        accelerator=rule.expect.accelerator or known.device,
        system=rule.expect.system or known.system,
    )
    return ExpectedHardware(
        **{
            name: "" if getattr(said, name) == ANY else getattr(said, name)
            for name in ("provider", "instance", "accelerator", "system")
        }
    )


def _hardware(
    platform: PlatformEvidence, cell: CellEvidence, wanted: ExpectedHardware, count: int
) -> RuleResult:
    """Return a result about the differences from the policy's and from the matrix's hardware.

    `count` is the number of accelerators that the platform's id implies.
    """
    found = _differences(cell, wanted, count)
    asked = dict.fromkeys(
        hardware_sentence(one) for one in (wanted, cell.expect) if one != ExpectedHardware()
    )
    said = "; ".join(dict.fromkeys(one.sentence for one in found)) or "it is"
    return RuleResult(
        id=f"hardware/{cell.id}",
        kind="hardware",
        blocking=platform.blocking(cell),
        outcome=worst(
            RuleOutcome.VIOLATED if one.is_known else RuleOutcome.UNKNOWN for one in found
        ),
        sentence=f"{cell.id} has to be a machine {', and by the matrix '.join(asked)}: {said}.",
        inputs={
            "expected": _wanted_document(wanted),
            **(
                {"matrix": _wanted_document(cell.expect)}
                if cell.expect != ExpectedHardware()
                else {}
            ),
            "machines": [_machine_document(machine) for machine in cell.machines],
        },
        waivable=False,
    )


def _differences(
    cell: CellEvidence, wanted: ExpectedHardware, count: int
) -> list[HardwareDifference]:
    if cell.simulated:
        return [HardwareDifference("its machine is simulated", is_known=False)]
    if not cell.machines:
        return [HardwareDifference("nothing is known of its machine", is_known=False)]
    found = [
        one
        for machine in cell.machines
        for asked in (wanted, cell.expect)
        for one in differences(
            asked,
            provider=machine.provider,
            instance=machine.instance_type,
            devices=machine.devices,
            system=machine.system,
        )
    ]
    for machine in cell.machines if count else ():
        had = sum(is_named(one, wanted.accelerator) for one in machine.devices or ())
        if 0 < had < count:
            found.append(HardwareDifference(f"it has {had} and not {count} of them"))
    return found


def _wanted_document(wanted: ExpectedHardware) -> dict[str, str]:
    told: dict[str, str] = asdict(wanted)
    return told if wanted.system else {k: v for k, v in told.items() if k != "system"}


def _machine_document(machine: MachineEvidence) -> dict[str, object]:
    return {
        **({"system": machine.system} if machine.system else {}),
        "provider": machine.provider,
        "instance_type": machine.instance_type,
        "devices": ["unknown"] if machine.devices is None else list(machine.devices),
    }


_UNAVAILABLE = {
    "fail": RuleOutcome.VIOLATED,
    "exception": RuleOutcome.VIOLATED,
    "inconclusive": RuleOutcome.UNKNOWN,
    "advisory": RuleOutcome.UNKNOWN,
}
_BAD = (RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN)
_WRONG = (Outcome.FAILED, Outcome.TIMED_OUT)


_CellResult = tuple[RuleOutcome, str]
"""An outcome with its sentence."""
_OfCell = Callable[[PlatformEvidence, CellEvidence], _CellResult]
"""Returns outcome and sentence of a cell that ran to its end."""


def platforms(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each platform, and for each substitute that is needed."""
    return _platforms(context, _ran)


def platforms_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of versions 1 and 2: runs with reused evidence count as green runs.

    The counts in their sentences are of tests that passed, failed, or were expected to fail.
    """
    return _platforms(context, _ran_v2)


def _platforms(context: RuleContext, ran: _OfCell) -> Iterator[RuleResult]:
    for platform in context.platforms:
        yield _platform(context.snapshot, platform, ran)
        unavailable = any(is_unavailable(cell) for cell in platform.cells)
        substitute = platform.rule.when_unavailable.substitute
        if unavailable and substitute is not None:
            yield _substitute(context, platform, substitute)


def _platform(snapshot: Snapshot, platform: PlatformEvidence, ran: _OfCell) -> RuleResult:
    rule = platform.rule
    if not platform.cells:
        return RuleResult(
            id=f"platform/{rule.id}",
            kind="platform",
            blocking=rule.level == "blocking",
            outcome=RuleOutcome.UNKNOWN,
            sentence=f"There is no evidence of {rule.id}: {_absent(snapshot, rule.id)}.",
            inputs={"cells": []},
            waivable=False,
        )
    told = [_cell(platform, cell, ran) for cell in platform.cells]
    bad = [cell for cell, (outcome, _) in zip(platform.cells, told, strict=True) if outcome in _BAD]
    return RuleResult(
        id=f"platform/{rule.id}",
        kind="platform",
        blocking=any(platform.blocking(cell) for cell in platform.cells),
        outcome=worst(outcome for outcome, _ in told),
        sentence=" ".join(sentence for _, sentence in told),
        inputs={"cells": [_inputs(cell) for cell in platform.cells]},
        failing={f"{one.id}: {one.reason or one.outcome or one.state}": 1 for one in bad},
    )


def _absent(snapshot: Snapshot, platform: str) -> str:
    other = snapshot.elsewhere.get(platform)
    if not other:
        return "no run was asked for it"
    runs = " ".join(f"--run {run}" for run in sorted({other, *snapshot.runs}))
    have = "run" if len(snapshot.runs) == 1 else "runs"
    lacks = f"{have} {', '.join(snapshot.runs)} {'has' if len(snapshot.runs) == 1 else 'have'} none"
    return f"{lacks}, and run {other} has it (`{runs}` takes both)"


def _cell(platform: PlatformEvidence, cell: CellEvidence, ran: _OfCell) -> _CellResult:
    why = ": ".join(word for word in (cell.reason, cell.detail) if word) or "no reason is recorded"
    if not is_over(cell):
        return RuleOutcome.UNKNOWN, f"{cell.id} is not over: it is {cell.state}."
    if is_unavailable(cell):
        outcome = _UNAVAILABLE[platform.rule.when_unavailable.verdict]
        return outcome, f"{cell.id} was not available ({why})."
    if cell.outcome in (Outcome.ERRORED, Outcome.CANCELLED, Outcome.NOT_RUN):
        word = cell.outcome.value if cell.outcome else ""
        return (
            RuleOutcome.UNKNOWN,
            f"{cell.id} ended {word} ({why}): the subject was not tested to the end.",
        )
    if not _is_explained(cell):
        sentence = f"{cell.id} is {cell.outcome} ({why}), and none of its jobs says so."
        return RuleOutcome.VIOLATED, sentence
    return ran(platform, cell) if cell.jobs else (RuleOutcome.UNKNOWN, f"{cell.id} ran no job.")


def _is_explained(cell: CellEvidence) -> bool:
    """Whether the outcomes of the jobs, which other rules evaluate, explain that of the cell."""
    return cell.outcome not in _WRONG or any(job.outcome in _WRONG for job in cell.jobs)


def _ran(platform: PlatformEvidence, cell: CellEvidence) -> _CellResult:
    said = _sentence_of(cell, all_counts)
    reused = sorted(job.id for job in cell.jobs if job.reused_from)
    wanted = platform.rule.consecutive_green
    if wanted > 1 and reused:
        sentence = (
            f"{said}; {wanted} green runs in a row are asked for, and this is no other one:"
            f" it reuses earlier evidence of {some(reused)}."
        )
        return _in_a_row(wanted, cell.green_streak, said, sentence)
    return _in_a_row(wanted, cell.green_streak + 1, said)


def _ran_v2(platform: PlatformEvidence, cell: CellEvidence) -> _CellResult:
    said = _sentence_of(cell, first_rules_counts)
    return _in_a_row(platform.rule.consecutive_green, cell.green_streak + 1, said)


def _sentence_of(cell: CellEvidence, tests: Callable[[Counts], str]) -> str:
    return f"{cell.id} ran: {tests(cell.counts)} in {counted(len(cell.jobs), 'job')}"


def _in_a_row(wanted: int, count: int, sentence: str, instead: str = "") -> _CellResult:
    if wanted > count:
        short = (
            f"{sentence}; {wanted} green runs in a row are asked for, and this is number {count}."
        )
        return RuleOutcome.UNKNOWN, instead or short
    return RuleOutcome.OK, f"{sentence}."


def _inputs(cell: CellEvidence) -> dict[str, object]:
    return {
        "cell": cell.id,
        "run": cell.run,
        "state": cell.state,
        "outcome": cell.outcome.value if cell.outcome else "",
        "reason": cell.reason,
        "detail": cell.detail,
        "green_streak": cell.green_streak,
        "tests": {name: number for name, number in cell.counts.as_dict().items() if number},
    }


def _substitute(
    context: RuleContext, platform: PlatformEvidence, substitute: Substitute
) -> RuleResult:
    """Return the result of a substitute, which must pass and never counts as the platform."""
    other = platform_evidence(
        PlatformRule(id=substitute.platform), context.policy, context.snapshot
    )
    found = {job.id: job.outcome for cell in other.ran for job in cell.jobs}
    names = sorted(substitute.jobs or found)
    failed = [name for name in names if found.get(name) in _WRONG]
    passed = [name for name in names if found.get(name) is Outcome.PASSED]
    doubted = [doubt for cell in other.cells for doubt in doubts(context, other, cell)]
    outcome, said = RuleOutcome.OK, f"{some(names)} passed on {other.rule.id} instead"
    if failed:
        outcome, said = RuleOutcome.VIOLATED, f"{some(failed)} failed on {other.rule.id}"
    elif doubted:
        outcome, said = RuleOutcome.UNKNOWN, some(doubted)
    elif not names or len(passed) < len(names):
        open_ = sorted(set(names) - set(passed))
        outcome = RuleOutcome.UNKNOWN
        said = f"there is no pass of {some(open_) or 'any job'} on {other.rule.id}"
    return RuleResult(
        id=f"substitute/{platform.rule.id}",
        kind="platform",
        blocking=any(platform.blocking(cell) for cell in platform.cells),
        outcome=outcome,
        sentence=f"Where {platform.rule.id} cannot be had: {said}.",
        inputs={"platform": other.rule.id, "jobs": names, "passed": passed, "failed": failed},
        failing=dict.fromkeys(
            failed or doubted or sorted(set(names) - set(passed)) or ["no job"], 1
        ),
    )

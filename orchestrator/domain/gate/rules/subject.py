"""Rules on the subject: it is the same in all evidence, the gate's product, and was imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from orchestrator.domain.gate.policy import some
from orchestrator.domain.gate.rule_context import RuleContext, is_unavailable
from orchestrator.domain.gate.snapshot import CellEvidence, UndeclaredRequirement
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult


def subject_loaded(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each cell in which no suite and no command loaded the subject.

    Commands with an unknown number of loaded modules, such as ingested ones, are ignored.
    """
    policy = context.policy.spec.evidence.subject_not_loaded
    for platform in context.platforms:
        for cell in platform.ran:
            loaded = {job.id: job.test_set.subject_modules for job in cell.jobs}
            suites = sorted(job.id for job in cell.jobs if job.kind == "suite")
            commands = sorted(loaded.keys() - set(suites) - _unknown(loaded))
            if not (suites or commands) or any(loaded[job] != 0 for job in (*suites, *commands)):
                continue
            yield RuleResult(
                id=f"subject_loaded/{cell.id}",
                kind="subject_loaded",
                blocking=platform.blocking(cell) and policy == "inconclusive",
                outcome=RuleOutcome.UNKNOWN,
                sentence=_not_loaded(cell, suites, commands),
                inputs={
                    "suites": suites,
                    **({"commands": commands} if commands else {}),
                    "policy": policy,
                },
                failing=dict.fromkeys([*suites, *commands], 1),
            )


def _unknown(loaded: Mapping[str, int | None]) -> Set[str]:
    return {job for job, number in loaded.items() if number is None}


def _not_loaded(cell: CellEvidence, suites: list[str], commands: list[str]) -> str:
    if suites and not commands:
        return (
            f"No test process of {some(suites)} on {cell.id} imported anything of"
            " the subject: what passed there says nothing about it. Where tests use it in"
            " other processes alone, the policy may say"
            " `evidence.subject_not_loaded: accepted`."
        )
    return (
        f"No Python process of {some([*suites, *commands])} on {cell.id} imported anything of the"
        " subject: what passed there says nothing about it. Programs that are not Python, and"
        " processes that were killed or called os._exit, do not report what they load: where only"
        " such use it, the policy may say `evidence.subject_not_loaded: accepted`."
    )


def undeclared_requirements(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each cell whose subject needs modules that its metadata does not require.

    A user who installs the subject would get an ImportError.
    """
    accepted = context.policy.spec.evidence.undeclared_requirements
    for platform in context.platforms:
        for cell in platform.ran:
            found = [one for one in cell.undeclared_requirements if one.module not in accepted]
            if not cell.undeclared_requirements:
                continue
            yield RuleResult(
                id=f"undeclared_requirements/{cell.id}",
                kind="undeclared_requirements",
                blocking=platform.blocking(cell),
                outcome=RuleOutcome.UNKNOWN if found else RuleOutcome.OK,
                sentence=_undeclared(cell, found),
                inputs={
                    "modules": [one.module for one in cell.undeclared_requirements],
                    "policy": list(accepted),
                },
                failing={one.module: 1 for one in found},
            )


def _undeclared(cell: CellEvidence, found: Sequence[UndeclaredRequirement]) -> str:
    if not found:
        names = some([one.module for one in cell.undeclared_requirements])
        return (
            f"The subject's metadata does not require {names}, which its import needs:"
            " the policy says that this is on purpose."
        )
    told = [f"{one.module} ({one.file} imports it, {one.distribution} has it)" for one in found]
    names = ", ".join(one.module for one in found)
    return (
        f"Importing the subject on {cell.id} needs what its metadata does not require:"
        f" {some(told)}. Where only the subject is installed, that import fails. Add the"
        " distribution to the subject's dependencies; where it is left out on purpose, the policy"
        f" may say `evidence.undeclared_requirements: [{names}]`."
    )


_ALWAYS = ("name", "version")
_TESTED = ("payload_sha256", "wheel_sha256")
"""Digests that identify the tested files."""
_DIGESTS = ("git_sha", *_TESTED)


def subject(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result about the subject of all cells.

    It is ok if the evidence is of the gate's product, the required digests are known, and digests
    differ only where the policy's `may_differ` allows it.
    """
    rule = context.policy.spec.subject
    compared = [key for key in _DIGESTS if key not in rule.may_differ]
    subjects = [cell.subject for cell in _cells(context)]
    known = [key for key in _TESTED if key in compared and _values(subjects, key)]
    yield _subject(context, {*_ALWAYS, *compared}, {*rule.require, *known})


def subject_v1(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the result of version 1 of the rule `subject`, which only compares required digests."""
    required = context.policy.spec.subject.require
    yield _subject(context, {*_ALWAYS, *required}, set(required))


def _subject(context: RuleContext, compared: Set[str], wanted: Set[str]) -> RuleResult:
    """Return a result: `compared` digests must agree, and `wanted` ones be known in all cells."""
    cells = _cells(context)
    known = [known for cell in cells for known in (cell.subject, *cell.stands_for)]
    keys = (*_ALWAYS, *sorted({*compared, *wanted} - {*_ALWAYS}))
    several = [key for key in keys if key in compared and len(_values(known, key)) > 1]
    lacking = [
        f"{cell.id} has no {key}"
        for cell in cells
        for key in (*_ALWAYS, *sorted(wanted))
        if not cell.subject.get(key) and (key in _ALWAYS or _is_requested(context, cell))
    ]
    found = {key: _values(known, key) for key in keys}
    outcome, sentence = _outcome(context, {key: found[key] for key in several}, lacking)
    return RuleResult(
        id="subject",
        kind="subject",
        blocking=True,
        outcome=outcome,
        sentence=sentence,
        inputs={
            "product": context.snapshot.product,
            "require": sorted(context.policy.spec.subject.require),
            "found": found,
        },
        waivable=False,
    )


def _cells(context: RuleContext) -> list[CellEvidence]:
    """Return the cells that can block and had a machine."""
    blocking = [cell for platform, cell in context.cells if platform.blocking(cell)]
    return [cell for cell in blocking if not is_unavailable(cell)]


def _outcome(
    context: RuleContext, several: Mapping[str, Sequence[str]], lacking: list[str]
) -> tuple[RuleOutcome, str]:
    product = context.policy.metadata.product
    if context.snapshot.product != product:
        sentence = f"The evidence is of {context.snapshot.product}, and the gate is for {product}."
        return RuleOutcome.UNKNOWN, sentence
    if several:
        told = [f"{key} is {' and '.join(values)}" for key, values in several.items()]
        return RuleOutcome.VIOLATED, f"The evidence is of more than one subject: {some(told)}."
    if lacking or not _cells(context):
        why = some(lacking) or "there is no evidence"
        return RuleOutcome.UNKNOWN, f"What the verdict binds to is not known: {why}."
    known = context.snapshot.subject
    told = [f"{key} {known[key]}" for key in sorted(known) if key not in _ALWAYS]
    named = " ".join(known[key] for key in _ALWAYS if key in known)
    digests = some(told) or "no digest is known, so the name is all that it binds to"
    return RuleOutcome.OK, f"All evidence is of {named}: {digests}."


def _values(subjects: Iterable[Mapping[str, str]], key: str) -> list[str]:
    return sorted({one[key] for one in subjects if one.get(key)})


def _is_requested(context: RuleContext, cell: CellEvidence) -> bool:
    """Whether digests are required of the cell; accepted ingested evidence has none."""
    allowed = context.policy.spec.evidence.attestation == "optional"
    return not (cell.ingested and allowed)

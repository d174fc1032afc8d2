"""Hardware: every machine is what the platform's name promises and the policy expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.domain.attestation import is_named
from orchestrator.domain.catalogue import promised
from orchestrator.domain.gate.case import Case, Stand
from orchestrator.domain.gate.policy import Expected, PlatformRule
from orchestrator.domain.gate.rules.result import worst
from orchestrator.domain.gate.snapshot import CellEvidence, MachineEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

ANY = "any"
_Finding = tuple[RuleOutcome, str]


def hardware(case: Case) -> Iterator[RuleResult]:
    """One result per cell of which a machine was had and something is promised."""
    allowed = case.policy.spec.evidence.attestation == "unattested_allowed"
    for stand in case.stands:
        wanted = expected(stand.rule)
        for cell in stand.ran:
            if wanted != Expected() and not (cell.ingested and allowed):
                yield _hardware(stand, cell, wanted)


def expected(rule: PlatformRule) -> Expected:
    """What the policy says, and where it says nothing, what the platform's id promises."""
    known = promised(rule.id)
    said = replace(
        rule.expect,
        provider=rule.expect.provider or known.provider,
        instance=rule.expect.instance or rule.instance,
        accelerator=rule.expect.accelerator or known.device,
    )
    return Expected(
        **{
            name: "" if getattr(said, name) == ANY else getattr(said, name)
            for name in ("provider", "instance", "accelerator")
        }
    )


def _hardware(stand: Stand, cell: CellEvidence, wanted: Expected) -> RuleResult:
    found = [finding for machine in cell.machines for finding in _findings(machine, wanted)]
    if not cell.machines:
        found = [(RuleOutcome.UNKNOWN, "nothing is known of its machine")]
    if cell.simulated:
        found = [(RuleOutcome.UNKNOWN, "its machine is simulated")]
    said = "; ".join(dict.fromkeys(sentence for _, sentence in found)) or "and so it is"
    return RuleResult(
        id=f"hardware/{cell.id}",
        kind="hardware",
        blocking=stand.blocking(cell),
        outcome=worst(outcome for outcome, _ in found),
        sentence=f"{cell.id} is to be {_words(wanted)}: {said}.",
        inputs={
            "expected": {
                "provider": wanted.provider,
                "instance": wanted.instance,
                "accelerator": wanted.accelerator,
            },
            "machines": [_told(machine) for machine in cell.machines],
        },
        waivable=False,
    )


def _findings(machine: MachineEvidence, wanted: Expected) -> Iterator[_Finding]:
    if wanted.provider:
        yield from _compared("its provider", machine.provider, wanted.provider)
    if wanted.instance:
        yield from _compared("its instance type", machine.instance_type, wanted.instance)
    if wanted.accelerator and machine.devices is None:
        yield RuleOutcome.UNKNOWN, "nobody looked at its accelerators"
    elif wanted.accelerator:
        named = any(is_named(device, wanted.accelerator) for device in machine.devices or ())
        if not named:
            has = ", ".join(machine.devices or ()) or "no accelerator"
            yield RuleOutcome.VIOLATED, f"it has {has}"


def _compared(what: str, found: str, wanted: str) -> Iterator[_Finding]:
    if not found:
        yield RuleOutcome.UNKNOWN, f"{what} is not known"
    elif found != wanted:
        yield RuleOutcome.VIOLATED, f"{what} is {found}"


def _words(wanted: Expected) -> str:
    place = " ".join(word for word in (wanted.provider, wanted.instance) if word)
    device = f"with {wanted.accelerator}" if wanted.accelerator else ""
    return " ".join(part for part in (place and f"of {place}", device) if part)


def _told(machine: MachineEvidence) -> dict[str, object]:
    return {
        "provider": machine.provider,
        "instance_type": machine.instance_type,
        "devices": ["unknown"] if machine.devices is None else list(machine.devices),
    }

"""Hardware: every machine is what the platform's name promises and the policy expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from orchestrator.domain.catalogue import promised
from orchestrator.domain.expected_hardware import (
    ANY,
    ExpectedHardware,
    HardwareDifference,
    differences,
    hardware_sentence,
)
from orchestrator.domain.gate.policy import PlatformRule
from orchestrator.domain.gate.rule_context import PlatformEvidence, RuleContext
from orchestrator.domain.gate.rules.rule_results import worst
from orchestrator.domain.gate.snapshot import CellEvidence, MachineEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult


def hardware(case: RuleContext) -> Iterator[RuleResult]:
    """One result per cell of which a machine was had and something is promised or expected."""
    allowed = case.policy.spec.evidence.attestation == "optional"
    for stand in case.stands:
        wanted = expected(stand.rule)
        for cell in stand.ran:
            asked = [one for one in (wanted, cell.expect) if one != ExpectedHardware()]
            if asked and not (cell.ingested and allowed):
                yield _hardware(stand, cell, wanted)


def expected(rule: PlatformRule) -> ExpectedHardware:
    """What the policy says, and where it says nothing, what the platform's id promises."""
    known = promised(rule.id)
    said = replace(
        rule.expect,
        provider=rule.expect.provider or known.provider,
        instance=rule.expect.instance or rule.instance,
        accelerator=rule.expect.accelerator or known.device,
    )
    return ExpectedHardware(
        **{
            name: "" if getattr(said, name) == ANY else getattr(said, name)
            for name in ("provider", "instance", "accelerator")
        }
    )


def _hardware(stand: PlatformEvidence, cell: CellEvidence, wanted: ExpectedHardware) -> RuleResult:
    """Both what is promised and what the matrix expects: neither makes up for the other."""
    found = [
        one
        for machine in cell.machines
        for asked in (wanted, cell.expect)
        for one in differences(
            asked,
            provider=machine.provider,
            instance=machine.instance_type,
            devices=machine.devices,
        )
    ]
    if not cell.machines:
        found = [HardwareDifference("nothing is known of its machine", is_known=False)]
    if cell.simulated:
        found = [HardwareDifference("its machine is simulated", is_known=False)]
    asked = dict.fromkeys(
        hardware_sentence(one) for one in (wanted, cell.expect) if one != ExpectedHardware()
    )
    said = "; ".join(dict.fromkeys(one.sentence for one in found)) or "it is"
    return RuleResult(
        id=f"hardware/{cell.id}",
        kind="hardware",
        blocking=stand.blocking(cell),
        outcome=worst(
            RuleOutcome.VIOLATED if one.is_known else RuleOutcome.UNKNOWN for one in found
        ),
        sentence=f"{cell.id} has to be a machine {', and by the matrix '.join(asked)}: {said}.",
        inputs={
            "expected": asdict(wanted),
            **({"matrix": asdict(cell.expect)} if cell.expect != ExpectedHardware() else {}),
            "machines": [_told(machine) for machine in cell.machines],
        },
        waivable=False,
    )


def _told(machine: MachineEvidence) -> dict[str, object]:
    return {
        "provider": machine.provider,
        "instance_type": machine.instance_type,
        "devices": ["unknown"] if machine.devices is None else list(machine.devices),
    }

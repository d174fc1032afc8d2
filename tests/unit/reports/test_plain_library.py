"""The platform report of a library that asks for no accelerator and has no PyTorch."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Outcome
from reports.registry import render
from tests.unit.reports.builders import evidence_of
from tests.unit.reports.stories import built_in, local, simulated

NO_TORCH = Attestation(facts={"instance_id": "here"}, devices=(), torch="", simulated=False)


def without_torch(story):
    cell, jobs = story()
    probed = {**cell.probed, "torch": None, "cuda": None, "packages": {"humanize": "4.9"}}
    return replace(cell, probed=probed, attestation=NO_TORCH), jobs


def test_it_tells_nothing_of_accelerators(templates):
    made = evidence_of(without_torch(local), outcome=Outcome.PASSED)
    text = render("platform", made, templates=templates)
    for word in ("PyTorch", "CUDA", "accelerator evidence", "**Accelerator**", "not probed yet"):
        assert word not in text.replace("needs CUDA", "")
    assert "As measured on the machine." in text


def test_what_was_asked_for_is_told_as_missing_and_not_as_to_come(templates):
    cell, jobs = without_torch(simulated)
    made = evidence_of((cell, jobs), outcome=Outcome.FAILED)
    text = render("platform", made, templates=templates)
    assert cell.state is CellState.DONE
    assert "not accelerator evidence" in text
    assert "not probed yet" not in text
    assert "| PyTorch | —" in text


def test_what_ran_on_the_cpu_with_pytorch_is_told_as_no_accelerator_evidence(templates):
    text = render("platform", evidence_of(built_in(), outcome=Outcome.PASSED), templates=templates)
    assert "not accelerator evidence: ran on the CPU" in text

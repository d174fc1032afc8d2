"""Where results come from and what they cost: nothing is claimed that was not seen."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.domain.attestation import Attestation
from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Outcome
from reports.model.values import Absent
from reports.registry import ContradictionError, model_of, render
from tests.unit.reports.builders import evidence_of
from tests.unit.reports.stories import a10g, l4, local, not_available, release, simulated, story

MARK = "SIMULATED: no gate accepts this"


def text_of(kind: str, evidence, templates, form: str = "md") -> str:
    return render(kind, evidence, format=form, templates=templates)


@pytest.mark.parametrize("form", ["md", "html", "json"])
@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_a_simulated_result_says_so_in_its_title(kind, form, templates):
    text = text_of(kind, story("simulated"), templates, form)
    title = next(line for line in text.splitlines() if "torchbridge v0.4.40" in line)
    assert MARK in title


def test_an_emulation_is_not_given_the_accelerator_that_was_asked_for(templates):
    for kind in ("platform", "summary"):
        text = text_of(kind, story("simulated"), templates)
        assert "A10G" not in text, kind
        assert "none" in text
    model = model_of("platform", story("simulated"))
    assert not model.hardware.is_accelerator_evidence


def test_every_row_of_an_emulation_is_marked(templates):
    evidence = evidence_of(local(), simulated(), l4(), outcome=Outcome.PASSED)
    text = text_of("summary", evidence, templates)
    assert f"(1 of 3 cells {MARK})" in text.splitlines()[0]
    rows = [line for line in text.splitlines() if line.startswith("| **AWS** `aws-a10g`")]
    assert len(rows) == 2  # results and costs
    assert all("SIMULATED" in row for row in rows)
    others = [line for line in text.splitlines() if line.startswith("| **GCP** `gcp-l4`")]
    assert not any("SIMULATED" in row for row in others)
    assert "Machines marked SIMULATED were not charged." in text


def test_what_the_machine_showed_before_it_was_lost_is_told():
    cell, jobs = a10g()
    early = replace(cell, probed={})
    evidence = evidence_of((early, jobs), outcome=Outcome.FAILED)
    (row,) = model_of("summary", evidence).rows
    assert row.accelerator == "NVIDIA A10G"
    none = replace(early, attestation=Attestation({}, (), "", simulated=False))
    evidence = evidence_of((none, jobs), outcome=Outcome.FAILED)
    (row,) = model_of("summary", evidence).rows
    assert row.accelerator == "none that the machine's tools show"


def test_another_device_than_asked_for_is_told(templates):
    cell, jobs = a10g()
    assert cell.attestation is not None
    other = replace(cell.attestation, mismatch="asked for 1 x nvidia A10G, found nvidia T4")
    evidence = evidence_of((replace(cell, attestation=other), jobs), outcome=Outcome.FAILED)
    assert "asked for 1 x nvidia A10G, found nvidia T4" in text_of("platform", evidence, templates)


def test_the_bill_adds_up_by_machine_by_phase_and_by_job():
    model = model_of("summary", release())
    assert not isinstance(model.costs, Absent)
    total = model.costs.bill.total_usd
    assert total == Decimal("0.1823") + Decimal("0.1301")
    assert sum(share.usd for share in model.costs.phases) == total
    jobs = sum(share.usd for share in model.costs.jobs)
    assert jobs + model.costs.overhead_usd == total
    assert model.costs.validated == 46 + 185 + 48
    assert model.costs.usd_per_validated == Decimal("0.001120")


def test_a_bill_whose_phases_do_not_add_up_is_not_published():
    cell, jobs = a10g()
    short = replace(cell.leases[0], phase_usd={CellState.RUNNING: Decimal("0.18")})
    evidence = evidence_of((replace(cell, leases=(short,)), jobs), outcome=Outcome.FAILED)
    with pytest.raises(ContradictionError, match=r"the total by state is 0\.18"):
        model_of("platform", evidence)


def test_a_cell_without_a_machine_costs_nothing_and_says_why():
    model = model_of("platform", evidence_of(not_available(), outcome=Outcome.NOT_AVAILABLE))
    assert isinstance(model.money.cost_usd, Absent)
    assert isinstance(model.provenance.attested, Absent)

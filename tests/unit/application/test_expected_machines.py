"""What the matrix expects of a machine is looked at before the first job, on any provider."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orchestrator.application.cell.preparing import WrongHardwareError, attest
from orchestrator.domain.matrix import ExpectedHardware, Platform

L4 = {"vendor": "nvidia", "name": "NVIDIA L4"}


def looked_at(
    expect: ExpectedHardware | None, *devices: dict[str, str], simulated: bool = False, **facts
):
    """The error of an attempt on this computer, and what is kept of who would have produced it."""
    kept = []
    lease = SimpleNamespace(
        id="lease-1", provider="local", facts=facts, simulated=simulated, endpoint=None,
        machine_id="m-1", place="here",
    )  # fmt: skip
    world = SimpleNamespace(
        stores=SimpleNamespace(leases=SimpleNamespace(attest=lambda _, row: kept.append(row)))
    )
    platform = Platform(id="gcp-l4", provider="local", expect=expect)
    now = SimpleNamespace(lease=lease, plan=SimpleNamespace(platform=platform))
    try:
        attest(world, now, {"devices": list(devices), "os": "Ubuntu 24.04", "machine": "arm64"})
    except WrongHardwareError as error:
        return str(error), kept[0].mismatch
    return "", kept[0].mismatch


@pytest.mark.parametrize(
    ("expect", "devices", "facts", "wrong"),
    [
        (None, [], {}, ""),
        (ExpectedHardware(accelerator="L4"), [L4], {}, ""),
        (ExpectedHardware(accelerator="L4"), [], {}, "with L4: it has no accelerator"),
        (ExpectedHardware(accelerator="L40S"), [L4], {}, "with L40S: it has nvidia NVIDIA L4"),
        (ExpectedHardware(provider="local"), [], {}, ""),
        (ExpectedHardware(provider="gcp"), [], {}, "of gcp: its provider is local"),
        (ExpectedHardware(instance="g2"), [], {"instance_type": "g2"}, ""),
        (
            ExpectedHardware(instance="g2"),
            [],
            {"instance_type": "g6"},
            "of g2: its instance type is g6",
        ),
        (ExpectedHardware(instance="g2"), [], {}, "of g2: its instance type is not known"),
        (ExpectedHardware(system="Linux aarch64"), [], {}, ""),
        (
            ExpectedHardware(system="Windows"),
            [],
            {},
            "under Windows: its system is Linux Ubuntu 24.04 aarch64",
        ),
    ],
)
def test_another_machine_than_expected_runs_no_job(expect, devices, facts, wrong) -> None:
    error, kept = looked_at(expect, *devices, **facts)
    assert kept == (f"the matrix expects a machine {wrong}" if wrong else "")
    assert error == (f"{kept}, on m-1 at here" if wrong else "")


def test_a_simulated_machine_may_have_no_device_and_none_of_another_kind() -> None:
    assert looked_at(ExpectedHardware(accelerator="L4"), simulated=True) == ("", "")
    error, _ = looked_at(ExpectedHardware(accelerator="L4"), L4 | {"name": "T4"}, simulated=True)
    assert "it has nvidia T4" in error

"""What was asked for, against what the machine says it is."""

from __future__ import annotations

import pytest

from orchestrator.domain.attestation import Device, devices_of, mismatch
from orchestrator.domain.matrix import Accelerator


def asked(name: str, vendor: str = "nvidia", **changes: object) -> Accelerator:
    return Accelerator(vendor=vendor, name=name, **changes)


def nvidia(name: str, capability: str = "8.6") -> Device:
    return Device("nvidia", name, compute_capability=capability)


TPU = Device("google", "v5e")

SAME = {
    "A10G": (asked("A10G"), [nvidia("NVIDIA A10G")]),
    "with capability": (asked("A10G", compute_capability="8.6"), [nvidia("NVIDIA A10G")]),
    "L4": (asked("L4"), [nvidia("NVIDIA L4")]),
    "L40S": (asked("l40s"), [nvidia("NVIDIA L40S")]),
    "T4 as a Tesla": (asked("T4"), [nvidia("Tesla T4")]),
    "A100 of any kind": (asked("A100"), [nvidia("NVIDIA A100-SXM4-80GB")]),
    "H100": (asked("H100"), [nvidia("NVIDIA H100 80GB HBM3")]),
    "the whole name": (asked("NVIDIA A10G"), [nvidia("NVIDIA A10G")]),
    "four": (asked("A10G", count=4), [nvidia("NVIDIA A10G")] * 4),
    "MI300X": (asked("MI300X", "amd"), [Device("amd", "AMD Instinct MI300X")]),
    "TPU": (asked("v5e", "google"), [TPU]),
    "one of another vendor beside it": (asked("A10G"), [Device("amd", "x"), nvidia("NVIDIA A10G")]),
    "nothing asked": (None, [nvidia("NVIDIA A10G")]),
    "nothing asked, nothing there": (None, []),
}

OTHER = {
    "another GPU": (asked("A10G"), [nvidia("Tesla T4")], "found nvidia Tesla T4"),
    "A10 is no A10G": (asked("A10G"), [nvidia("NVIDIA A10")], "found nvidia NVIDIA A10"),
    "A10G is no A10": (asked("A10"), [nvidia("NVIDIA A10G")], "asked for 1 x nvidia A10,"),
    "L40S is no L4": (asked("L4"), [nvidia("NVIDIA L40S")], "found nvidia NVIDIA L40S"),
    "L4 is no L40S": (asked("L40S"), [nvidia("NVIDIA L4")], "found nvidia NVIDIA L4"),
    "none": (asked("A10G"), [], "found no accelerator"),
    "too few": (asked("A10G", count=4), [nvidia("NVIDIA A10G")] * 3, "asked for 4 x nvidia A10G"),
    "too many": (asked("A10G"), [nvidia("NVIDIA A10G")] * 2, "NVIDIA A10G, nvidia NVIDIA A10G"),
    "two kinds": (asked("A10G"), [nvidia("NVIDIA A10G"), nvidia("Tesla T4")], "nvidia Tesla T4"),
    "another vendor": (asked("MI300X", "amd"), [nvidia("NVIDIA H100")], "found nvidia NVIDIA H100"),
    "a name of another vendor": (asked("L4"), [Device("amd", "L4")], "found amd L4"),
    "another TPU": (asked("v5p", "google"), [TPU], "found google v5e"),
    "no TPU": (asked("v5e", "google"), [], "asked for 1 x google v5e, found no accelerator"),
    "capability": (asked("A10G", compute_capability="8.6"), [nvidia("NVIDIA A10G", "8.9")],
        "asked for compute capability 8.6, found 8.9 (NVIDIA A10G)"),
    "capability of one of them": (asked("A10G", count=2, compute_capability="8.6"),
        [nvidia("NVIDIA A10G"), nvidia("NVIDIA A10G", "8.0")], "found 8.0"),
    "capability not told": (asked("A10G", compute_capability="8.6"), [nvidia("NVIDIA A10G", "")],
        "found unknown (NVIDIA A10G)"),
    "a part of a word": (asked("A1"), [nvidia("NVIDIA A10G")], "asked for 1 x nvidia A1"),
}  # fmt: skip


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize(("wanted", "found"), SAME.values(), ids=SAME)
def test_what_was_asked_for_is_no_mismatch(
    wanted: Accelerator | None, found: list[Device], simulated: bool
):
    assert mismatch(wanted, found, simulated=simulated) == ""


@pytest.mark.parametrize(("wanted", "found", "said"), OTHER.values(), ids=OTHER)
def test_anything_else_is_one_and_says_what_was_found(
    wanted: Accelerator, found: list[Device], said: str
):
    assert said in mismatch(wanted, found, simulated=False)


def test_a_simulated_machine_needs_no_device_and_what_it_reports_is_compared():
    assert mismatch(asked("A10G"), [], simulated=True) == ""
    assert mismatch(asked("v5e", "google"), [], simulated=True) == ""
    assert "Tesla T4" in mismatch(asked("A10G"), [nvidia("Tesla T4")], simulated=True)


def test_devices_are_read_from_the_probe():
    probed = {
        "devices": [
            {
                "index": 0, "vendor": "nvidia", "name": "NVIDIA L4", "uuid": "GPU-1",
                "memory_bytes": 1, "compute_capability": "8.9", "driver": "580.95",
            },
            {"vendor": "amd", "name": "AMD Instinct MI300X", "compute_capability": None},
        ],
    }  # fmt: skip
    assert devices_of(probed) == (
        Device("nvidia", "NVIDIA L4", "GPU-1", "8.9", "580.95"),
        Device("amd", "AMD Instinct MI300X"),
    )


@pytest.mark.parametrize(
    "devices", [None, [], "nvidia", 7, {"vendor": "nvidia"}, [None, "x", 7, ["vendor"]]]
)
def test_a_probe_that_makes_no_sense_has_no_device(devices: object):
    assert devices_of({"devices": devices}) == ()
    assert devices_of({}) == ()

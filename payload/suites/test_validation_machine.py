"""The validator on machines and configurations: correct ones pass, and each check can fail."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from suites.numerics import needs_cuda
from torchbridge.config import Config
from torchbridge.hardware import Hardware, probe
from torchbridge.validation import UnifiedValidator, machine

GIB = 2**30
TURING, AMPERE, ADA = (Hardware.nvidia(c, memory_bytes=GIB) for c in ((7, 5), (8, 0), (8, 9)))
BARE = Hardware.cpu(memory_bytes=GIB)


class TestMachine:
    def test_three_here_or_five_on_cuda(self, device):
        report = UnifiedValidator(device=device).validate_hardware()
        count = 5 if probe(device).vendor == "nvidia" else 3
        assert (report.ok, len(report.findings)) == (True, count)

    @pytest.fixture
    def here(self, device) -> machine.Machine:
        """Return this machine."""
        return machine.Machine(device, probe(device))

    def test_another_makers_device(self, here):
        other = "intel" if here.hardware.vendor != "intel" else "cpu"
        told = dataclasses.replace(here, hardware=Hardware(other, "x", "x"))
        assert machine.device_available(told).status == "fail"
        assert machine.device_available(here).status == "pass"

    def test_too_little_memory(self, here):
        small = dataclasses.replace(here.hardware, memory_bytes=GIB - 1)
        assert machine.memory(dataclasses.replace(here, hardware=small)).status == "fail"
        assert machine.memory(here).details["checked_bytes"] == 16 * 2**20

    def test_memory_of_unknown_size(self, here, device):
        chip = dataclasses.replace(here.hardware, memory_bytes=0)  # as on XLA devices
        finding = machine.memory(dataclasses.replace(here, hardware=chip))
        assert (finding.status, "unknown" in finding.message) == ("pass", True)
        validator = UnifiedValidator("strict", device=device, hardware=chip)
        assert validator.validate_model(torch.nn.Linear(4, 4), [torch.ones(2, 4)]).score == "7/7"
        assert validator.validate_config(Config())["memory"].status == "pass"

    @pytest.mark.parametrize(("factor", "status"), [(1.0, "pass"), (1.001, "fail")])
    def test_product(self, here, factor, status):
        told = dataclasses.replace(here, multiply=lambda a, b: (a @ b) * factor)
        finding = machine.compute(told)
        assert (finding.status, finding.details["tolerance"]) == (status, 1e-5)
        if factor != 1.0:
            assert finding.details["error"] == pytest.approx(1e-3, rel=0.01)

    def test_wrong_16_bit_products(self, here):
        chip = Hardware.amd("gfx942")

        def multiply(a, b):
            return (a @ b) * (1.2 if a.dtype == torch.bfloat16 else 1.0)

        finding = machine.capabilities(machine.Machine(here.device, chip, multiply))
        assert (finding.status, "bf16" in finding.message) == ("fail", True)
        assert "fp16" not in finding.message
        assert machine.capabilities(machine.Machine(here.device, chip)).status == "pass"

    def test_no_tensor_cores(self, here):
        told = dataclasses.replace(here, hardware=Hardware.nvidia((6, 1)))
        assert machine.tensor_cores(told).status == "warning"

    @needs_cuda((8, 0))
    def test_tensor_cores_are_faster(self, here):
        finding = machine.tensor_cores(here)
        assert (finding.status, finding.details["gain"] >= 1.5) == ("pass", True)


class TestConfiguration:
    @pytest.fixture
    def look(self, device):
        """Return a function that validates a changed default configuration.

        The hardware is this machine's unless `chip` is given.
        """

        def report(chip=None, **changes):
            validator = UnifiedValidator(device=device, hardware=chip)
            return validator.validate_config(Config().update(**changes))

        return report

    def test_default(self, look):
        report = look()
        names = ("precision", "memory", "hardware")
        assert (report.names("pass"), report.score) == (names, "3/3")

    def test_presets(self, device):
        report = UnifiedValidator(device=device).validate_presets()
        assert (report.names("pass"), report.ok) == (("inference", "training", "development"), True)
        levels = [finding.message.split(",")[0] for finding in report]
        assert levels == ["aggressive", "balanced", "conservative"]
        assert all(len(finding.details) == 3 for finding in report)

    def test_presets_on_a_machine_that_cannot(self, device):
        hardware = dataclasses.replace(probe(device), memory_bytes=2**20)
        report = UnifiedValidator(device=device, hardware=hardware).validate_presets()
        assert len(report.names("fail")) == 3
        assert report["training"].message == "this machine cannot do its memory"

    @pytest.mark.parametrize(
        ("chip", "group", "changes", "status", "words"),
        [
            (BARE, "precision", {"allow_tf32": True}, "warning", "no TF32"),
            (AMPERE, "precision", {"allow_tf32": True}, "pass", "in TF32"),
            (AMPERE, "hardware", {"backend": "amd"}, "fail", "asked for amd"),
            (AMPERE, "hardware", {"backend": "cuda"}, "pass", "cuda on"),
            (AMPERE, "hardware", {"backend": "cpu"}, "pass", "cpu on"),
            (AMPERE, "hardware", {"nvidia": {"fp8_enabled": True}}, "fail", "(sm_80)"),
            (BARE, "hardware", {"nvidia": {"enabled": True}}, "fail", "enabled on cpu"),
            (BARE, "hardware", {"amd": {"enabled": True}}, "fail", "enabled on cpu"),
            (BARE, "hardware", {"intel": {"enabled": True}}, "fail", "enabled on cpu"),
            (None, "hardware", {"device_id": 99}, "fail", "device_id 99"),
        ],
    )
    def test_what_is_asked_for(self, look, chip, group, changes, status, words):
        finding = look(chip, **{group: changes})[group]
        assert (finding.status, words in finding.message) == (status, True), finding.message

    def test_memory_of_fraction_and_margin(self, look):
        chip = Hardware.nvidia((8, 0), memory_bytes=10 * GIB)
        changes = {"hardware": {"nvidia": {"memory_fraction": 0.5}}, "memory": {"safety_margin": 2}}
        assert look(chip, **changes)["memory"].details["room_bytes"] == 2.5 * GIB
        changes["hardware"]["nvidia"]["memory_fraction"] = 0.01
        assert look(chip, **changes)["memory"].status == "fail"

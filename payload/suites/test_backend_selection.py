"""Which backend is taken: by vendor and capability, never by a marketing name."""

from __future__ import annotations

import pytest
import torch

from suites.backend_models import AMPERE, HOPPER, L4
from torchbridge import backends
from torchbridge.backends import (
    BACKENDS,
    CPUBackend,
    create_backend,
    detect_best_backend,
    list_available_backends,
)
from torchbridge.backends.nvidia import NVIDIABackend
from torchbridge.config import Config
from torchbridge.device import pick_device
from torchbridge.hardware import Hardware, probe

VENDORS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel", "google": "tpu", "cpu": "cpu"}


class TestDetection:
    @pytest.mark.parametrize(
        ("hardware", "name"),
        [
            (L4, "nvidia"),
            (Hardware.amd("gfx942:sramecc+:xnack-"), "amd"),
            (Hardware.tpu("v5litepod-8"), "tpu"),
            (Hardware("intel", "Arc", "xe"), "intel"),
            (Hardware.cpu(), "cpu"),
        ],
        ids=lambda value: value if isinstance(value, str) else value.vendor,
    )
    def test_by_vendor(self, hardware, name):
        assert detect_best_backend(hardware) == name

    def test_of_this_machine(self):
        assert detect_best_backend() == VENDORS[probe(pick_device()).vendor]

    @pytest.mark.parametrize(
        ("capability", "name", "architecture", "fp8"),
        [
            ((6, 1), "NVIDIA H100", "pascal", False),
            ((7, 0), "Tesla V100", "volta", False),
            ((7, 5), "Tesla T4", "turing", False),
            ((8, 0), "NVIDIA A100", "ampere", False),
            ((8, 6), "NVIDIA A10G", "ampere", False),
            ((8, 9), "NVIDIA L4", "ada", True),
            ((8, 9), "NVIDIA A100", "ada", True),  # what a device is called says nothing
            ((9, 0), "a device without a name", "hopper", True),
            ((10, 0), "NVIDIA B200", "blackwell", True),
            ((12, 0), "NVIDIA RTX PRO", "blackwell", True),
        ],
    )
    def test_by_capability_not_by_name(self, capability, name, architecture, fp8, device):
        hardware = Hardware.nvidia(capability, name=name)
        made = NVIDIABackend(hardware=hardware, device=device)
        assert made.settings.architecture.value == architecture
        assert made.supports_fp8 is fp8
        assert made.get_device_info()["name"] == name  # for people


class TestCreation:
    def test_by_name(self, device):
        made = create_backend("nvidia", hardware=HOPPER, device=device)
        assert (type(made), made.hardware, made.device) == (NVIDIABackend, HOPPER, device)
        assert type(create_backend("cpu")) is CPUBackend

    def test_auto_goes_by_the_hardware(self, device):
        assert type(create_backend(hardware=AMPERE, device=device)) is NVIDIABackend
        assert type(create_backend("auto", hardware=Hardware.cpu())) is CPUBackend

    def test_auto_is_this_machines_best(self):
        made = create_backend()
        assert made.name == detect_best_backend()
        assert made.is_available
        assert made.device.type == pick_device().type

    def test_the_config_is_passed_on(self):
        config = Config(optimization_level="aggressive")
        assert create_backend("cpu", config).config is config

    def test_unknown_name(self):
        with pytest.raises(ValueError, match="auto or one of nvidia, amd, tpu, intel, cpu"):
            create_backend("cuda9")

    def test_no_silent_fallback(self):
        if "nvidia" in list_available_backends():
            pytest.skip("needs a machine without a CUDA device")
        with pytest.warns(UserWarning, match="no nvidia device here"):
            made = create_backend("nvidia")
        assert (made.name, made.is_available, made.device.type) == ("nvidia", False, "cpu")


class TestList:
    def test_the_cpu_is_always_there_and_last(self):
        assert list_available_backends()[-1] == "cpu"

    def test_only_what_has_a_device(self):
        listed = set(list_available_backends())
        cuda = torch.cuda.is_available()
        assert ("nvidia" in listed) == (cuda and not torch.version.hip)
        assert ("amd" in listed) == (cuda and bool(torch.version.hip))
        assert ("intel" in listed) == torch.xpu.is_available()

    @pytest.mark.parametrize("name", BACKENDS)
    def test_each_is_a_backend_of_its_name(self, name):
        kind = backends.backend_class(name)
        assert issubclass(kind, backends.Backend)
        assert kind.name == name
        assert VENDORS[kind.vendor] == name

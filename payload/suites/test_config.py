"""Settings: their types and ranges, how they are changed and written, and the presets."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from torchbridge import config as package
from torchbridge.config import (
    AMDConfig,
    Config,
    HardwareConfig,
    IntelConfig,
    KernelConfig,
    MemoryConfig,
    NVIDIAConfig,
    OptimizationLevel,
    PrecisionConfig,
    TPUConfig,
)

GROUPS = [
    AMDConfig,
    Config,
    HardwareConfig,
    IntelConfig,
    KernelConfig,
    MemoryConfig,
    NVIDIAConfig,
    PrecisionConfig,
    TPUConfig,
]
REFUSED = [  # group, setting, values that are out of range or of the wrong type
    (HardwareConfig, "backend", ["gpu"]),
    (HardwareConfig, "device_id", [-1, "0"]),
    (HardwareConfig, "nvidia", [None, 3]),
    (KernelConfig, "compile_mode", ["fastest"]),
    (KernelConfig, "fusion", [1, None]),
    (MemoryConfig, "safety_margin", [0.99, -1]),
    (NVIDIAConfig, "memory_fraction", [0, 1.1]),
    (AMDConfig, "default_precision", ["fp16", torch.float32]),
    (TPUConfig, "cache_size", [0, 1.5, True]),
    (Config, "optimization_level", ["fast", None]),
]
REFUSED = [(group, name, value) for group, name, values in REFUSED for value in values]
ENUMS = {
    "OptimizationLevel": "conservative balanced aggressive",
    "PrecisionFormat": "fp32 bf16",
    "HardwareBackend": "cuda cpu tpu amd intel",
    "NVIDIAArchitecture": "auto pascal volta turing ampere ada hopper blackwell",
    "ValidationLevel": "minimal standard strict comprehensive",
}


class TestEnums:
    @pytest.mark.parametrize("name", ENUMS)
    def test_members(self, name):
        kind = getattr(package, name)
        assert [member.value for member in kind] == ENUMS[name].split()
        assert all(member == member.value for member in kind)  # they are strings


class TestGroups:
    @pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
    def test_written_and_read(self, group):
        settings = group()
        written = json.loads(json.dumps(settings.to_dict()))
        assert list(written) == [field.name for field in dataclasses.fields(group)]
        assert group.from_dict(written) == settings
        assert hash(settings) == hash(group())

    def test_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            Config().optimization_level = "aggressive"

    @pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
    def test_unknown_setting_names_the_nearest(self, group):
        name = dataclasses.fields(group)[-1].name
        with pytest.raises(ValueError, match=rf"no setting '{name}_'; nearest: '{name}'"):
            group().update(**{f"{name}_": None})

    @pytest.mark.parametrize(
        ("group", "name", "value"), REFUSED, ids=lambda v: getattr(v, "__name__", repr(v))
    )
    def test_refused(self, group, name, value):
        with pytest.raises(ValueError, match=rf"^{group.__name__}.*{name}.*got"):
            group(**{name: value})
        with pytest.raises(ValueError, match=name):
            group().update(**{name: value})

    def test_strings_and_integers_are_converted(self):
        config = Config(optimization_level="aggressive")
        assert config.optimization_level is OptimizationLevel.AGGRESSIVE
        margin = MemoryConfig(safety_margin=2).safety_margin
        assert (margin, type(margin)) == (2.0, float)


class TestConfig:
    def test_updates_reach_inner_groups_only(self):
        before = Config().update(hardware={"tpu": {"memory_fraction": 0.5}})
        after = before.update(memory={"safety_margin": 1.5}, hardware={"tpu": {"cache_size": 7}})
        expected = before.to_dict()
        expected["memory"]["safety_margin"] = 1.5
        expected["hardware"]["tpu"]["cache_size"] = 7
        assert after.to_dict() == expected

    def test_a_group_may_be_given_whole(self):
        memory = MemoryConfig(safety_margin=3.0)
        assert Config().update(memory=memory).memory is memory

    def test_partial_dictionaries_take_defaults(self):
        assert Config.from_dict({}) == Config()
        config = Config.from_dict({"precision": {"allow_tf32": True}})
        assert config == Config(precision=PrecisionConfig(allow_tf32=True))

    @pytest.mark.parametrize(
        ("backend", "kind"),
        [("cuda", "cuda"), ("amd", "cuda"), ("intel", "xpu"), ("tpu", "xla"), ("cpu", "cpu")],
    )
    def test_device_of_a_backend(self, backend, kind):
        assert Config().update(hardware={"backend": backend}).device == torch.device(kind)
        second = Config().update(hardware={"backend": backend, "device_id": 1}).device
        assert (second.type, second.index) == (kind, 1)

    def test_device_is_this_machines(self, device):
        assert Config().device.type == device.type


class TestPresets:
    @pytest.mark.parametrize(
        ("preset", "level", "changes"),
        [
            (Config.for_inference, "aggressive", {}),
            (Config.for_training, "balanced", {}),
            (Config.for_development, "conservative", {"kernels": {"compile": False}}),
        ],
        ids=lambda value: getattr(value, "__name__", ""),
    )
    def test_what_they_set(self, preset, level, changes):
        assert preset() == Config(optimization_level=level).update(**changes)
        assert Config.from_dict(json.loads(json.dumps(preset().to_dict()))) == preset()
        own = preset(kernels={"fusion": False, "compile": True}, memory={"safety_margin": 2.0})
        assert (own.kernels.fusion, own.kernels.compile) == (False, True)  # changes win
        assert own.memory == preset().memory.update(safety_margin=2.0)

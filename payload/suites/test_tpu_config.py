"""TPU settings: what the names of chips determine, what is refused, copies by dictionary."""

from __future__ import annotations

import json

import pytest
import torch

from suites import vendor_rules as rules
from torchbridge.config import (
    Config,
    HardwareBackend,
    TPUCompilationMode,
    TPUConfig,
    TPUTopology,
    TPUVersion,
    detect_tpu_topology,
    detect_tpu_version,
)
from torchbridge.hardware import Hardware

GIB = 2**30


class TestTPUConfig:
    def test_tpu_config_creation(self):
        config = TPUConfig()
        assert config.version is TPUVersion.AUTO
        assert config.topology is TPUTopology.AUTO
        assert config.compilation_mode is TPUCompilationMode.TORCH_XLA
        assert (config.precision, config.cache_size) == ("bfloat16", 100)
        assert (config.compile_timeout_s, config.history_retention_s) == (300.0, 3600.0)
        assert config.memory_bytes is None

    def test_tpu_config_custom_values(self):
        config = TPUConfig(version="v5p", topology="pod", precision="float32", cache_size=7)
        assert config.version is TPUVersion.V5P
        assert config.topology is TPUTopology.POD
        assert (config.precision, config.cache_size) == ("float32", 7)
        assert config.memory_bytes == 95 * GIB

    def test_tpu_config_serialization(self):
        config = TPUConfig(version="v6e", memory_gb=24, dynamic_shapes=True)
        written = json.loads(json.dumps(config.to_dict()))
        assert (written["version"], written["memory_gb"]) == ("v6e", 24.0)
        assert TPUConfig.from_dict(written) == config

    def test_detect_tpu_version_v4(self):
        assert {detect_tpu_version(told) for told in ("v4-8", "TPU v4")} == {TPUVersion.V4}

    def test_detect_tpu_version_v5p(self):
        v5p, v5e = ("v5p-16", "TPU v5", "TPU v5p"), ("v5litepod-4", "TPU v5 lite", "v5e")
        assert {detect_tpu_version(told) for told in v5p} == {TPUVersion.V5P}
        assert {detect_tpu_version(told) for told in v5e} == {TPUVersion.V5E}

    def test_detect_tpu_topology_single(self):
        told = {detect_tpu_topology(name) for name in ("v4-8", "v5litepod-8", "v6e-1")}
        assert told == {TPUTopology.SINGLE}

    def test_detect_tpu_topology_pod(self):
        told = {detect_tpu_topology(name) for name in ("v4-16", "v5litepod-256", "v5p-8960")}
        assert told == {TPUTopology.POD}
        assert detect_tpu_topology("v5p-8", slices=2) is TPUTopology.SUPERPOD

    def test_detect_tpu_version_no_xla(self, monkeypatch):
        monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
        assert detect_tpu_version() is TPUVersion.AUTO
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v6e-4")
        assert detect_tpu_version() is TPUVersion.V6E
        with pytest.raises(ValueError, match="v99"):
            detect_tpu_version("v99-8")

    def test_detect_tpu_topology_no_xla(self, monkeypatch):
        monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
        assert detect_tpu_topology() is TPUTopology.AUTO
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v6e-64")
        assert detect_tpu_topology() is TPUTopology.POD


class TestKernelPyTorchConfigTPU:
    def test_config_with_tpu_backend(self):
        config = Config().update(hardware={"backend": "tpu", "tpu": {"version": "v5e"}})
        assert config.hardware.chosen() is HardwareBackend.TPU
        assert config.hardware.tpu.memory_bytes == 16 * GIB
        assert config.device == torch.device("xla")

    def test_config_tpu_serialization(self):
        rules.survives_a_dictionary(rules.settings("tpu", version="v4", topology="pod"))

    def test_device_detection_tpu_available(self):
        chip = Hardware.tpu("v5litepod-8")
        assert Config().hardware.chosen(chip) is HardwareBackend.TPU
        assert (chip.vendor, chip.architecture, chip.has("bf16")) == ("google", "v5e", True)

    def test_device_detection_no_tpu(self):
        assert Config().hardware.chosen(Hardware.cpu()) is HardwareBackend.CPU
        assert Config().hardware.chosen(Hardware.nvidia((9, 0))) is HardwareBackend.CUDA

    def test_tpu_config_modes(self):
        for preset in (Config.for_inference, Config.for_training, Config.for_development):
            config = preset(hardware={"tpu": {"version": "v5p"}})
            assert config.hardware.tpu == TPUConfig(version="v5p")

    def test_tpu_hardware_backend_enum(self):
        assert HardwareBackend("tpu") is HardwareBackend.TPU
        assert HardwareBackend.TPU.value == "tpu"


class TestTPUEnums:
    def test_tpu_version_enum(self):
        assert [one.value for one in TPUVersion] == ["auto", "v4", "v5e", "v5p", "v6e", "v7"]

    def test_tpu_topology_enum(self):
        assert [one.value for one in TPUTopology] == ["auto", "single", "pod", "superpod"]

    def test_tpu_compilation_mode_enum(self):
        assert [one.value for one in TPUCompilationMode] == ["xla", "pjit", "torch_xla"]


class TestTPUConfigValidation:
    def test_valid_tpu_configs(self):
        sizes = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "v7": 192}
        for version, gib in sizes.items():
            assert TPUConfig(version=version).memory_bytes == gib * GIB
            assert TPUConfig(version=version, memory_gb=8).memory_bytes == 8 * GIB

    def test_tpu_config_memory_bounds(self):
        assert TPUConfig(memory_fraction=1).memory_fraction == 1.0
        for changes in ({"memory_fraction": 0}, {"memory_fraction": 1.1}, {"memory_gb": 0}):
            with pytest.raises(ValueError, match=next(iter(changes))):
                TPUConfig(**changes)

    def test_tpu_config_xla_optimization_levels(self):
        told = [TPUConfig(xla_optimization_level=n).xla_optimization_level for n in range(3)]
        assert told == [0, 1, 2]
        for wrong in (-1, 3):
            with pytest.raises(ValueError, match=r"0\.\.2"):
                TPUConfig(xla_optimization_level=wrong)

    def test_tpu_config_precision_values(self):
        assert TPUConfig(precision="float32").precision == "float32"
        with pytest.raises(ValueError, match="float32, bfloat16"):
            TPUConfig(precision="float16")

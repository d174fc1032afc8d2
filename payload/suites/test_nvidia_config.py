"""The 12 named tests of NVIDIA's settings. Rules of absent chips are tested with `Hardware`."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from torchbridge.config import Config, HardwareBackend, NVIDIAArchitecture, NVIDIAConfig
from torchbridge.config.vendors import detect_architecture
from torchbridge.hardware import Hardware, probe

CPU = Hardware.cpu()
A100, L4, H100 = (Hardware.nvidia(capability) for capability in ((8, 0), (8, 9), (9, 0)))


class TestNVIDIAConfig:
    def test_nvidia_config_creation(self):
        config = NVIDIAConfig()
        assert (config.enabled, config.fp8_enabled) == (None, None)  # the device decides
        assert config.architecture is NVIDIAArchitecture.AUTO
        assert NVIDIAConfig(architecture="ada").architecture is NVIDIAArchitecture.ADA
        with pytest.raises(ValueError, match=r"NVIDIAConfig.architecture must be one of auto, pa"):
            NVIDIAConfig(architecture="kepler")

    def test_nvidia_architecture_detection_no_cuda(self):
        for hardware in (CPU, Hardware.amd("gfx942"), Hardware.tpu("v5p-8")):
            assert detect_architecture(hardware) is NVIDIAArchitecture.AUTO
            told = NVIDIAConfig().on(hardware)
            assert (told.enabled, told.fp8_enabled) == (False, False)
            with pytest.raises(ValueError, match=f"enabled on {hardware.vendor}"):
                NVIDIAConfig(enabled=True).on(hardware)

    def test_nvidia_architecture_detection_h100(self):
        assert detect_architecture(H100) is NVIDIAArchitecture.HOPPER
        told = NVIDIAConfig().on(H100)
        assert (told.enabled, told.fp8_enabled) == (True, True)
        named_otherwise = Hardware.nvidia((9, 0), name="NVIDIA A100-SXM4-80GB")
        assert detect_architecture(named_otherwise) is NVIDIAArchitecture.HOPPER

    def test_nvidia_architecture_detection_a100(self):
        assert detect_architecture(A100) is NVIDIAArchitecture.AMPERE
        told = NVIDIAConfig().on(A100)
        assert (told.enabled, told.fp8_enabled) == (True, False)
        with pytest.raises(ValueError, match=r"is ampere \(sm_80\) here, got 'hopper'"):
            NVIDIAConfig(architecture="hopper").on(A100)

    def test_nvidia_config_fp8_settings(self):
        assert NVIDIAConfig().on(L4).fp8_enabled  # Ada's units have FP8
        assert not NVIDIAConfig(fp8_enabled=False).on(H100).fp8_enabled
        with pytest.raises(ValueError, match="fp8_enabled needs sm_89 or later, this is ampere"):
            NVIDIAConfig(fp8_enabled=True).on(A100)
        with pytest.raises(ValueError, match="fp8_enabled needs ada"):
            NVIDIAConfig(architecture="ampere", fp8_enabled=True)
        for told in (NVIDIAConfig(architecture="ada", fp8_enabled=True), NVIDIAConfig()):
            assert told.on(L4) == NVIDIAConfig(enabled=True, architecture="ada", fp8_enabled=True)

    def test_nvidia_config_memory_settings(self):
        config = NVIDIAConfig(memory_fraction=0.5)
        assert config.memory_fraction == 0.5
        assert NVIDIAConfig(memory_fraction=1).memory_fraction == 1.0
        for bad in (0.0, -0.1, 1.01):
            with pytest.raises(ValueError, match=r"memory_fraction must be in \(0, 1\]"):
                NVIDIAConfig(memory_fraction=bad)


class TestKernelPyTorchConfigNVIDIA:
    def test_kernelpytorch_config_nvidia_integration(self):
        config = Config().update(hardware={"nvidia": {"cuda_graphs": True}})
        assert config.hardware.nvidia == NVIDIAConfig(cuda_graphs=True)
        assert config.hardware.amd == Config().hardware.amd  # other vendors' settings stay

    def test_hardware_config_cuda_auto_enable(self):
        hardware = Config().hardware
        for chip in (A100, L4, H100):
            assert hardware.chosen(chip) is HardwareBackend.CUDA
            assert hardware.nvidia.on(chip).enabled
        assert hardware.update(backend="cpu").chosen(H100) is HardwareBackend.CPU

    def test_hardware_config_cpu_fallback(self):
        hardware = Config().hardware
        assert hardware.chosen(CPU) is HardwareBackend.CPU
        assert not hardware.nvidia.on(CPU).enabled
        assert Config().update(hardware={"backend": "cpu"}).device.type == "cpu"

    def test_config_modes_nvidia_settings(self):
        for preset in (Config.for_inference, Config.for_training, Config.for_development):
            asked = preset(hardware={"nvidia": {"memory_fraction": 0.7}}).hardware.nvidia
            assert asked == NVIDIAConfig(memory_fraction=0.7)
            assert preset().hardware.nvidia.on(H100).architecture is NVIDIAArchitecture.HOPPER
            assert preset().hardware.nvidia.on(probe()).enabled == (probe().vendor == "nvidia")

    def test_config_update_nvidia_settings(self):
        before = Config()
        after = before.update(hardware={"nvidia": {"memory_fraction": 0.25, "enabled": False}})
        assert (after.hardware.nvidia.memory_fraction, after.hardware.nvidia.enabled) == (0.25, 0)
        assert before.hardware.nvidia.memory_fraction == 0.9  # the original is frozen
        with pytest.raises(ValueError, match="NVIDIAConfig has no setting 'fp8'; nearest: 'fp8_"):
            before.update(hardware={"nvidia": {"fp8": True}})

    def test_config_to_dict_includes_nvidia(self):
        config = Config().update(hardware={"nvidia": {"architecture": "ada", "fp8_enabled": True}})
        written = config.to_dict()["hardware"]["nvidia"]
        assert (written["architecture"], written["fp8_enabled"]) == ("ada", True)
        assert set(written) == {one.name for one in fields(NVIDIAConfig)}
        assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config

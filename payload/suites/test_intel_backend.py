"""Intel backend: its rules on injected chips, its passes on this machine's device."""

from __future__ import annotations

import math

import pytest
import torch

from suites import vendor_rules as rules
from suites.backend_models import in_float64, mlp
from suites.numerics import assert_close, needs_module, needs_vendor
from torchbridge import memory
from torchbridge.backends import errors as exceptions
from torchbridge.backends import intel
from torchbridge.backends.intel import (
    IntelBackend,
    IntelMemoryManager,
    XPUDeviceManager,
    intel_hardware,
)
from torchbridge.config import Config, HardwareBackend, IntelArchitecture, IntelConfig
from torchbridge.config.vendors import INTEL_LEVELS
from torchbridge.hardware import Hardware, probe

PVC = intel_hardware(IntelArchitecture.PVC, units=128, memory_bytes=64 * 2**30)
DG2 = intel_hardware(IntelArchitecture.DG2, units=32)
INTEGRATED = intel_hardware(IntelArchitecture.INTEGRATED, units=8)
BF16, HERE = torch.bfloat16, probe().vendor == "intel"
needs_xpu = needs_vendor("intel", "an Intel XPU")
needs_ipex = needs_module("intel_extension_for_pytorch")


@pytest.fixture
def backend(device):
    """Return a backend by the rules of a data-centre GPU, on this machine's device."""
    return IntelBackend(hardware=PVC, device=device)


@pytest.fixture
def optimizer(device):
    """Return an optimizer by the rules of a data-centre GPU, on this machine's device."""
    return intel.IntelOptimizer(hardware=PVC, device=device)


@pytest.fixture
def kernels():
    """Return a kernel optimizer for a data-centre GPU with 128 units and matrix cores."""
    return intel.IntelKernelOptimizer(PVC)


class TestIntelConfig:
    def test_default_config(self):
        config = IntelConfig()
        assert (config.architecture, config.optimization_level) == (IntelArchitecture.AUTO, "O1")

    def test_architecture_enum(self):
        values = ["auto", "pvc", "ats", "dg2", "flex", "integrated"]
        assert [one.value for one in IntelArchitecture] == values

    def test_pvc_configuration(self):
        config = IntelConfig(architecture="pvc", default_precision="bf16")
        assert (config.architecture.value, config.default_precision.value) == ("pvc", "bf16")

    def test_dg2_configuration(self):
        config = IntelConfig(architecture="dg2", memory_fraction=0.5)
        assert IntelConfig.from_dict(config.to_dict()) == config

    def test_integrated_configuration(self):
        assert IntelConfig(architecture="integrated").architecture.value == INTEGRATED.architecture
        assert (INTEGRATED.has("bf16"), INTEGRATED.has("matrix_cores")) == (False, False)
        with pytest.raises(ValueError, match="optimization_level must be O0, O1 or O2, got 'O3'"):
            IntelConfig(optimization_level="O3")


class TestHardwareConfigWithIntel:
    def test_intel_config_field(self):
        config = rules.settings("intel", architecture="flex")
        assert config.hardware.intel == IntelConfig(architecture="flex")
        rules.survives_a_dictionary(config)

    def test_intel_backend_enum(self):
        assert HardwareBackend("intel") is HardwareBackend.INTEL
        assert Config().hardware.chosen(PVC) is HardwareBackend.INTEL


class TestIntelExceptions:
    def test_xpu_not_available_error(self):
        if HERE:
            assert IntelBackend().require_device() == torch.device("xpu", 0)
            return
        with pytest.raises(exceptions.XPUNotAvailableError, match=r"not built for xpu|sees no"):
            IntelBackend(hardware=PVC, device="cpu").require_device()

    def test_ipex_not_installed_error(self):
        if intel.is_ipex_available():
            intel.require_libraries()
            return
        with pytest.raises(exceptions.IPEXNotInstalledError, match=r"torch\.xpu does without it"):
            intel.require_libraries()

    def test_xpu_device_error(self):
        count = XPUDeviceManager().device_count
        with pytest.raises(exceptions.XPUDeviceError, match=f"no XPU 99: there are {count}"):
            XPUDeviceManager().device_info(99)

    def test_xpu_out_of_memory_error(self, device):
        manager = IntelMemoryManager(IntelConfig(), device)
        rules.what_does_not_fit_is_refused(manager, exceptions.XPUOutOfMemoryError)

    def test_onednn_error(self, monkeypatch):
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        with pytest.raises(exceptions.OneDNNError, match="built without oneDNN"):
            intel.require_libraries()

    def test_xpu_optimization_error(self, backend):
        rules.a_failing_pass_is_told(backend, exceptions.XPUOptimizationError)


class TestXPUUtilities:
    def test_is_xpu_available_returns_bool(self):
        assert intel.is_xpu_available() is HERE

    def test_is_ipex_available_returns_bool(self):
        assert intel.is_ipex_available() is not needs_ipex.args[0]  # is the package missing?

    def test_get_ipex_version(self):
        version = intel.get_ipex_version()
        assert version is None or version.split(".")[0].isdigit()

    def test_xpu_available_constant(self):
        assert intel.XPU_AVAILABLE is intel.is_xpu_available()

    def test_ipex_available_constant(self):
        assert intel.IPEX_AVAILABLE is intel.is_ipex_available()


class TestXPUDeviceInfo:
    def test_device_info_creation(self):
        if HERE:
            assert XPUDeviceManager().device_info(0) == probe()
        assert (PVC.name, PVC.architecture, PVC.units) == ("Intel pvc", "pvc", 128)
        assert (PVC.memory_bytes, PVC.target) == (64 * 2**30, "xpu")
        assert PVC.features == {"fp16", "bf16", "matrix_cores"}


class TestXPUDeviceManager:
    def test_device_manager_creation(self):
        assert XPUDeviceManager().device_count == torch.xpu.device_count()

    def test_device_count_property(self):
        assert (XPUDeviceManager().device_count > 0) is HERE

    def test_get_device_fallback(self):
        if HERE:
            assert XPUDeviceManager().get_device() == torch.device("xpu", 0)
            return
        with pytest.warns(UserWarning, match="the CPU takes its place"):
            assert XPUDeviceManager().get_device() == torch.device("cpu")


class TestIntelMemoryManager:
    def test_memory_manager_creation(self, device):
        manager = IntelMemoryManager(IntelConfig(memory_fraction=0.5), device)
        assert (manager.device, manager.config.memory_fraction) == (device, 0.5)

    def test_get_device_fallback(self, device):
        tensor = IntelMemoryManager(IntelConfig(), device).allocate_tensor((2, 3), BF16)
        assert (tensor.device, tensor.shape, tensor.dtype) == (device, (2, 3), BF16)

    def test_optimal_alignment(self, device):
        manager = IntelMemoryManager(IntelConfig(), device)
        sizes = {torch.float64: 8, torch.float32: 16, BF16: 32, torch.int8: 64}
        assert {dtype: manager.optimal_alignment(dtype) for dtype in sizes} == sizes

    def test_memory_stats(self, device):
        manager = IntelMemoryManager(IntelConfig(), device)
        rules.stats_are_the_devices(manager.get_memory_stats(), device)

    def test_memory_summary(self, device):
        summary = IntelMemoryManager(IntelConfig(), device).memory_summary()
        total = memory.stats(device).total / 2**30
        assert summary.startswith(f"{device}: ")
        assert summary.endswith(f"of {total:.2f} GiB free")


class TestIntelBackend:
    def test_backend_creation(self):
        if HERE:
            assert IntelBackend().device.type == "xpu"
            return
        with pytest.warns(UserWarning, match="IntelBackend works on the CPU"):
            assert IntelBackend().device == torch.device("cpu")

    def test_backend_with_config(self, device):
        config = rules.settings("intel", optimization_level="O2", default_precision="fp32")
        prepared = IntelBackend(config, hardware=PVC, device=device).prepare_model(mlp())
        assert prepared.level == "aggressive"
        assert {p.dtype for p in prepared.model.parameters()} == {torch.float32}

    def test_device_property(self, backend, device):
        assert backend.device == device
        assert backend.to_device([torch.ones(1)])[0].device == device

    def test_devices_property(self, backend):
        assert len(backend.devices) == torch.xpu.device_count()

    def test_is_xpu_available_property(self, backend):
        assert backend.is_xpu_available is backend.is_available is HERE

    def test_get_device_info(self, backend):
        info = backend.get_device_info()
        assert (info["backend"], info["architecture"], info["units"]) == ("intel", "pvc", 128)
        with pytest.raises(ValueError, match="cannot use hardware of nvidia"):
            IntelBackend(hardware=Hardware.nvidia((9, 0)), device="cpu")

    def test_get_memory_stats(self, backend, device):
        rules.stats_are_the_devices(backend.get_memory_stats(), device)

    def test_prepare_model_none(self, backend):
        with pytest.warns(UserWarning, match="the model is None"):
            assert backend.prepare_model(None) is None

    def test_prepare_model_cpu_fallback(self, device):
        prepare = IntelBackend(hardware=INTEGRATED, device=device).prepare_model
        x = torch.randn(4, 128, device=device)
        prepared = rules.keeps_the_numbers(prepare, mlp(), x, level="O2")
        assert prepared.result("bfloat16").reason == "intel xpu has no native bf16"

    def test_synchronize(self, backend, device):
        total = torch.ones(1000, device=device).sum()
        backend.synchronize()
        assert total.item() == 1000

    def test_empty_cache(self, backend, device):
        held = torch.ones(2**20, device=device)
        backend.empty_cache()
        assert held.sum().item() == 2**20

    def test_memory_summary(self, backend, device):
        assert backend.memory_summary().startswith(f"{device}: ")


class TestIntelOptimizer:
    def test_optimizer_creation(self, optimizer, device):
        assert optimizer.backend.device == device

    def test_optimization_levels(self, optimizer):
        rules.levels_keep_the_numbers(optimizer, INTEL_LEVELS)

    def test_optimize_o0(self, optimizer):
        rules.lowest_is_bit_for_bit(optimizer, "O0")

    def test_optimize_o1(self, optimizer):
        rules.norms_are_folded(optimizer, "O1")

    def test_optimize_returns_result(self, optimizer):
        result = optimizer.optimize(mlp(), "O2")
        assert (result.optimization_level, result.compilation_time) == ("O2", 0)
        assert "bfloat16" in result.optimizations_applied
        assert "compile: no sample inputs to compile with" in result.warnings


class TestIntelKernelOptimizer:
    def test_kernel_optimizer_creation(self, kernels):
        assert (kernels.units, kernels.local_bytes) == (128, 128 * 1024)
        assert intel.IntelKernelOptimizer(DG2).local_bytes == 64 * 1024

    def test_gemm_config(self, kernels):
        found = kernels.gemm_config(1000, 700, 300)
        groups = math.ceil(1000 / found.tile_m) * math.ceil(700 / found.tile_n)
        assert (found.work_groups, found.waves) == (groups, math.ceil(groups / 128))
        assert found.utilization == pytest.approx(
            1000 * 700 / (found.waves * 128 * found.tile_m * found.tile_n)
        )
        assert "do not multiply float32" in found.reason

    def test_gemm_config_bf16(self, kernels):
        found = kernels.gemm_config(4096, 4096, 4096, BF16)
        assert found.systolic
        assert found.utilization == 1
        assert found.tile_n % 16 == found.tile_m % 8 == found.tile_k % 16 == 0

    def test_conv_config(self, kernels):
        found, layout = kernels.conv_config((8, 64, 56, 56), 128, (3, 3), BF16, stride=2)
        assert found == kernels.gemm_config(8 * 28 * 28, 128, 64 * 9, BF16)
        assert layout is torch.channels_last

    def test_attention_config(self, kernels):
        found = kernels.attention_config(1, 8, 256, 256, 64, BF16)
        assert not found.fused  # 1 MiB fits into 128 units of 128 KiB
        assert found.reason.startswith(f"{8 * 256 * 256 * 2:,} bytes of scores fit")
        assert (found.q_block + 2 * found.k_block) * 64 * 2 <= kernels.local_bytes

    def test_attention_config_long_sequence(self, kernels):
        found = kernels.attention_config(1, 8, 16384, 16384, 64, BF16)
        assert found.fused
        assert "4,294,967,296 bytes of scores do not fit" in found.reason
        with pytest.raises(ValueError, match="head_dim 65536 does not fit"):
            kernels.attention_config(1, 1, 64, 64, 65536)


class TestXPUOptimizations:
    def test_optimizations_creation(self, backend):
        assert intel.XPUOptimizations(backend).backend is backend

    def test_get_optimal_dtype(self, device):
        dtypes = [
            intel.XPUOptimizations(IntelBackend(hardware=chip, device=device)).get_optimal_dtype()
            for chip in (PVC, DG2, INTEGRATED)
        ]
        assert dtypes == [BF16, BF16, torch.float32]

    def test_optimize_model_for_inference(self, backend, device):
        prepare = intel.XPUOptimizations(backend).optimize_model_for_inference
        x = torch.randn(4, 128, device=device)
        assert rules.keeps_the_numbers(prepare, mlp(), x, limit=2e-2).level == "aggressive"


class TestIntelBackendIntegration:
    def test_backend_model_workflow(self, backend):
        x = backend.to_device(torch.randn(4, 128))
        rules.keeps_the_numbers(backend.prepare_model, mlp(), x)

    def test_config_to_backend_workflow(self, device):
        for level, wanted in (("O0", "conservative"), ("O1", "balanced"), ("O2", "aggressive")):
            config = rules.settings("intel", optimization_level=level)
            backend = IntelBackend(config, hardware=PVC, device=device)
            assert backend.prepare_model(mlp()).level == wanted

    def test_optimizer_integration(self, optimizer):
        rules.unknown_levels_are_balanced(optimizer, "O1")
        rules.training_keeps_precision(optimizer)


@needs_xpu
class TestIntelBackendWithXPU:
    def test_device_is_xpu(self):
        assert IntelBackend().device == torch.device("xpu", 0)

    def test_model_to_xpu(self):
        x = torch.randn(4, 128).to("xpu")
        prepared = rules.keeps_the_numbers(IntelBackend().prepare_model, mlp(), x, limit=1e-3)
        assert {p.device.type for p in prepared.model.parameters()} == {"xpu"}

    def test_tensor_allocation(self):
        manager = IntelBackend().memory
        before = manager.get_memory_stats()["allocated_bytes"]
        held = manager.allocate_tensor((1024, 1024))
        assert held.device.type == "xpu"
        assert manager.get_memory_stats()["allocated_bytes"] - before == 4 * 2**20


@needs_ipex
class TestIntelBackendWithIPEX:
    def test_ipex_optimization(self):
        import intel_extension_for_pytorch as ipex

        model, x = mlp().eval(), torch.randn(4, 128)
        assert_close(ipex.optimize(model)(x), in_float64(model, x))

    def test_ipex_version(self):
        import intel_extension_for_pytorch as ipex

        assert intel.get_ipex_version() == ipex.__version__

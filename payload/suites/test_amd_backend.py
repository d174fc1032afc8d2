"""AMD backend: its rules on injected chips, its passes on this machine's device."""

from __future__ import annotations

import itertools

import pytest
import torch

from suites import vendor_rules as rules
from suites.backend_models import mlp
from suites.numerics import assert_close, needs_vendor
from torchbridge.backends import errors as exceptions
from torchbridge.backends.amd import (
    AMDBackend,
    AMDMemoryManager,
    AMDOptimizer,
    HIPUtilities,
    ROCmCompiler,
)
from torchbridge.backends.optimise import LEVELS
from torchbridge.config import (
    AMDArchitecture,
    AMDConfig,
    Config,
    HardwareBackend,
    PrecisionFormat,
)
from torchbridge.config.vendors import detect_amd_architecture
from torchbridge.hardware import Hardware, probe
from torchbridge.lru import LRUCache

CDNA2, CDNA3, RDNA2, RDNA3 = (Hardware.amd(t) for t in ("gfx90a", "gfx942", "gfx1030", "gfx1100"))
needs_rocm = needs_vendor("amd", "a ROCm device")


def double_relu(x: torch.Tensor) -> torch.Tensor:
    """Return 2 relu(x), a function for the compiler."""
    return 2 * torch.relu(x)


@pytest.fixture
def optimizer(device):
    """Return an optimizer by the rules of an MI300, on this machine's device."""
    return AMDOptimizer(hardware=CDNA3, device=device)


@pytest.fixture
def compiler():
    """Return a compiler that uses torch.compile without code generation, which is fast."""
    return ROCmCompiler(AMDConfig(kernel_cache_size=2), CDNA3, backend="aot_eager")


@pytest.fixture
def utilities(device):
    """Return utilities with profiling enabled."""
    return HIPUtilities(device, profiling=True)


class TestAMDConfig:
    def test_default_config_creation(self):
        config = AMDConfig()
        assert config.architecture is AMDArchitecture.AUTO
        assert (config.enabled, config.default_precision, config.matrix_cores) == (None,) * 3
        assert config.kernel_cache_size == 100

    def test_cdna2_architecture(self):
        found = AMDConfig().on(CDNA2)
        assert (found.architecture, found.matrix_cores) == (AMDArchitecture.CDNA2, True)
        assert Config().hardware.chosen(CDNA2) is HardwareBackend.AMD
        assert detect_amd_architecture(Hardware.amd("gfx90a:sramecc+:xnack-")) is found.architecture

    def test_cdna3_architecture(self):
        assert (CDNA3.has("fp8"), CDNA2.has("fp8")) == (True, False)
        with pytest.raises(ValueError, match=r"architecture is cdna2 \(gfx90a\) here, got 'cdna3'"):
            AMDConfig(architecture="cdna3").on(CDNA2)

    def test_rdna_architectures(self):
        for chip, name in ((RDNA2, "rdna2"), (RDNA3, "rdna3")):
            found = AMDConfig().on(chip)
            assert (found.architecture.value, found.matrix_cores) == (name, False)

    def test_optimization_levels(self):
        for level in LEVELS:
            config = rules.settings("amd", optimization_level=level)
            assert AMDBackend(config, hardware=CDNA3, device="cpu").level_of(None) == level
        with pytest.raises(ValueError, match="optimization_level"):
            AMDConfig(optimization_level="ludicrous")

    def test_precision_settings(self):
        assert AMDConfig(default_precision="bf16").default_precision is PrecisionFormat.BF16
        with pytest.raises(ValueError, match="fp32, bf16, got 'fp16'"):
            AMDConfig(default_precision="fp16")

    def test_memory_settings(self):
        for name, wrong in (("memory_fraction", 1.01), ("kernel_cache_size", 0)):
            with pytest.raises(ValueError, match=name):
                AMDConfig(**{name: wrong})

    def test_matrix_core_settings(self):
        assert AMDConfig(matrix_cores=True).on(CDNA2).matrix_cores is True
        assert AMDConfig(matrix_cores=False).on(CDNA3).matrix_cores is False
        with pytest.raises(ValueError, match=r"matrix_cores needs CDNA, this is rdna3 \(gfx1100\)"):
            AMDConfig(matrix_cores=True).on(RDNA3)


class TestAMDArchitecture:
    def test_all_architectures_exist(self):
        told = {detect_amd_architecture(chip) for chip in (CDNA2, CDNA3, RDNA2, RDNA3)}
        told |= {detect_amd_architecture(Hardware.amd(t)) for t in ("gfx908", "gfx950", "gfx1201")}
        assert told == set(AMDArchitecture) - {AMDArchitecture.AUTO}

    def test_architecture_values(self):
        values = "auto cdna cdna2 cdna3 cdna4 rdna2 rdna3 rdna4"
        assert [one.value for one in AMDArchitecture] == values.split()


class TestAMDExceptions:
    def test_amd_backend_error(self):
        for error in (exceptions.AMDDeviceError, exceptions.HIPKernelError):
            assert issubclass(error, exceptions.AMDBackendError)

    def test_rocm_not_available_error(self, device):
        if probe(device).vendor == "amd":
            assert AMDBackend().require_device() == device
            return
        with pytest.raises(exceptions.ROCmNotAvailableError, match="is not built for hip"):
            AMDBackend(hardware=CDNA3, device=device).require_device()

    def test_hip_compilation_error(self, compiler, monkeypatch):
        monkeypatch.setenv("PATH", "")
        missing = pytest.raises(
            exceptions.HIPCompilationError, match="hipcc is not on the PATH: add is"
        )
        with missing:
            compiler.compile_kernel("__global__ void add() {}", name="add")
        assert compiler.stats.compiled == 0

    def test_rocm_memory_error(self, device):
        manager = AMDMemoryManager(AMDConfig(memory_fraction=0.5), device)
        rules.what_does_not_fit_is_refused(manager, exceptions.ROCmOutOfMemoryError)

    def test_matrix_core_error(self, device):
        with pytest.raises(exceptions.MatrixCoreError, match="matrix_cores needs CDNA"):
            AMDBackend(rules.settings("amd", matrix_cores=True), hardware=RDNA3, device=device)

    def test_amd_optimization_error(self, device):
        backend = AMDBackend(hardware=CDNA3, device=device)
        rules.a_failing_pass_is_told(backend, exceptions.AMDOptimizationError)


class TestAMDOptimizer:
    def test_optimizer_creation(self, optimizer, device):
        assert optimizer.backend.device == device
        assert optimizer.backend.settings.architecture is AMDArchitecture.CDNA3

    def test_optimization_levels(self, optimizer):
        rules.levels_keep_the_numbers(optimizer, LEVELS)

    def test_optimization_result(self, optimizer):
        result = optimizer.optimize(mlp(), "aggressive")
        assert "4 float32 -> 4 bfloat16" in {one.evidence for one in result.passes}
        assert "compile: no sample inputs to compile with" in result.warnings
        assert result.device_info["target"] == "gfx942"

    def test_optimization_with_conv_model(self, optimizer):
        rules.norms_are_folded(optimizer, "balanced")


class TestROCmCompiler:
    def test_compiler_creation(self, compiler):
        assert (compiler.hardware.target, compiler.stats.compiled) == ("gfx942", 0)
        assert compiler.stats.cache.capacity == 2

    def test_compile_kernel(self, compiler, device):
        x = torch.randn(33, device=device)
        kernel = compiler.compile_kernel(double_relu, (x,))
        assert (kernel.name, kernel.path_taken) == ("double_relu", "aot_eager")
        assert b"relu" in kernel.code
        assert kernel.seconds > 0
        assert_close(kernel.call(x), 2 * x.cpu().double().clamp_min(0))

    def test_compilation_cache(self, compiler, device):
        x = torch.randn(8, device=device)
        first = compiler.compile_kernel(double_relu, (x,))
        assert compiler.compile_kernel(double_relu, (x + 1,)) is first
        assert compiler.compile_kernel(double_relu, (torch.cat([x, x]),)) is not first
        compiler.compile_kernel(torch.sin, (x,), name="sin")  # the third evicts the oldest
        assert compiler.compile_kernel(double_relu, (x,)) is not first

    def test_compilation_stats(self, compiler, device):
        x = torch.randn(8, device=device)
        kernels = [compiler.compile_kernel(double_relu, (x,)) for _ in range(3)]
        stats = compiler.stats
        assert (stats.compiled, stats.cache.hits, stats.cache.misses) == (1, 2, 1)
        assert stats.seconds == kernels[0].seconds

    def test_clear_cache(self, compiler, device):
        x = torch.randn(8, device=device)
        compiler.compile_kernel(double_relu, (x,))
        compiler.clear_cache()
        assert (compiler.stats.cache.size, compiler.stats.compiled) == (0, 1)
        compiler.compile_kernel(double_relu, (x,))
        assert compiler.stats.compiled == 2


class TestAMDMemoryManager:
    def test_memory_manager_creation(self, device):
        half, whole = (AMDMemoryManager(AMDConfig(memory_fraction=f), device) for f in (0.5, 1.0))
        assert half.device == device
        assert half.free_bytes() < whole.free_bytes()

    @needs_rocm
    def test_allocate_tensor(self, device):
        manager = AMDMemoryManager(AMDConfig(), device)
        before = manager.get_memory_stats()["allocated_bytes"]
        tensor = manager.allocate_tensor((1024, 1024), torch.float16)
        assert tensor.device == device
        assert manager.get_memory_stats()["allocated_bytes"] - before == 2 * 2**20

    @needs_rocm
    def test_memory_stats(self, device):
        manager = AMDMemoryManager(AMDConfig(), device)
        rules.stats_are_the_devices(manager.get_memory_stats(), device)

    def test_allocation_summary(self, device):
        manager = AMDMemoryManager(AMDConfig(), device)
        for rows in (2, 5):
            assert manager.allocate_tensor((rows, 8), torch.float32).shape == (rows, 8)
        summary = manager.allocation_summary()
        assert (summary.tensors, summary.bytes, summary.largest_bytes) == (2, 224, 160)


class TestHIPUtilities:
    def test_utilities_creation(self, device, utilities):
        assert utilities.clock == ("device" if device.type == "cuda" else "cpu")
        assert (utilities.streams, utilities.profiling_summary()) == ([], {})

    def test_create_stream(self, device, utilities):
        stream = utilities.create_stream()
        with torch.cuda.stream(stream) if device.type == "cuda" else stream:
            total = torch.ones(100, device=device).sum()
        stream.synchronize()
        assert (total.item(), len(utilities.streams)) == (100, 1)

    def test_create_event(self, device, utilities):
        events = [utilities.create_event() for _ in range(3)]
        for event in events:
            event.record()
            torch.ones(1000, device=device).sum().item()
        events[2].synchronize()
        first, second = (a.elapsed_time(b) for a, b in itertools.pairwise(events))
        assert min(first, second) > 0
        assert events[0].elapsed_time(events[2]) == pytest.approx(first + second, rel=0.1)

    def test_profiling_disabled(self, device):
        utilities = HIPUtilities(device)
        with utilities.profile_region("work"):
            pass
        assert utilities.profiling_summary() == {}

    def test_profiling_enabled(self, utilities):
        with pytest.raises(KeyError), utilities.profile_region("work"):
            raise KeyError("timed all the same")
        assert len(utilities.profiling_summary()["work"]) == 1

    def test_profiling_summary(self, utilities, device):
        with utilities.profile_region("outer"):
            for _ in range(3):
                with utilities.profile_region("inner"):
                    torch.ones(1000, device=device).sum()
        summary = utilities.profiling_summary()
        assert {name: len(samples) for name, samples in summary.items()} == {"inner": 3, "outer": 1}
        assert summary["outer"][0] >= sum(summary["inner"]) > 0

    def test_clear_profiling_data(self, utilities):
        with utilities.profile_region("work"):
            pass
        utilities.clear_profiling_data()
        assert utilities.profiling_summary() == {}

    def test_device_properties(self, device, utilities):
        told, found = utilities.device_properties(), probe(device)
        names = ("vendor", "name", "target", "memory_bytes", "units")
        assert told == {name: getattr(found, name) for name in names} | {"clock": utilities.clock}

    def test_cleanup(self, utilities):
        utilities.create_stream()
        with utilities.profile_region("work"):
            pass
        utilities.cleanup()
        assert (utilities.streams, utilities.profiling_summary()) == ([], {})


class TestAMDBackendIntegration:
    @needs_rocm
    def test_full_pipeline(self, device):
        backend, x = AMDBackend(), torch.randn(16, 128, device=device)
        given = {"level": "aggressive", "sample_inputs": (x,), "limit": 2e-2}
        prepared = rules.keeps_the_numbers(backend.prepare_model, mlp(), x, **given)
        assert "compile" in prepared.applied
        backend.cleanup()

    def test_config_integration(self, device):
        config = rules.settings("amd", default_precision="bf16", architecture="cdna3")
        prepared = AMDBackend(config, hardware=CDNA3, device=device).prepare_model(mlp())
        assert {p.dtype for p in prepared.model.parameters()} == {torch.bfloat16}


class TestLRUCache:
    def test_lru_cache_basic(self):
        cache = LRUCache(3)
        cache.put("a", 1)
        assert (cache.get("a"), cache.get("b"), len(cache)) == (1, None, 1)
        with pytest.raises(ValueError, match="at least 1, got 0"):
            LRUCache(0)

    def test_lru_cache_eviction(self):
        rules.the_least_recently_used_goes(used="a")

    def test_lru_cache_update(self):
        cache = LRUCache(2)
        for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
            cache.put(key, value)
        assert (cache.get("a"), cache.get("b"), cache.get("c")) == (3, None, 4)

    def test_lru_cache_clear(self):
        cache = LRUCache(2)
        cache.put("a", 1)
        cache.get("a")
        cache.clear()
        assert (len(cache), cache.get("a")) == (0, None)
        assert (cache.stats.hits, cache.stats.misses) == (1, 1)

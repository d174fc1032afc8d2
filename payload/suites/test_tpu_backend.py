"""The TPU backend: on a TPU with the real torch_xla, elsewhere with a fake on the CPU."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from suites import fake_xla
from suites import vendor_rules as rules
from suites.backend_models import in_float64, mlp
from suites.fake_xla import LIMIT, USED, FakeXLA, stand_in
from suites.numerics import Clock, assert_close
from torchbridge.backends import errors as exceptions
from torchbridge.backends import tpu
from torchbridge.backends import xla as xla_module
from torchbridge.backends.tpu import (
    TPUBackend,
    TPUMemoryManager,
    TPUOptimizer,
    XLACompiler,
    XLAOptimizations,
    validate_config,
    validate_model,
)
from torchbridge.config import Config, TPUConfig
from torchbridge.lru import LRUCache

BF16 = 2e-2  # against float64: weights and products of 8 bits
F32 = {"precision": "float32", "xla_optimization_level": 0}


def settings(**changes) -> Config:
    """Return a config with these TPU settings."""
    return rules.settings("tpu", **changes)


def rows(count: int) -> tuple[torch.Tensor]:
    """Return sample inputs [count, 128] of the perceptron."""
    return (torch.randn(count, 128),)


@pytest.fixture
def xla():
    """Return the real adapter on a TPU, else one on the fake."""
    return fake_xla.here()


@pytest.fixture
def x(xla):
    """Return normally distributed numbers [8, 128] on the device."""
    return torch.randn(8, 128).to(xla.device())


@pytest.fixture
def float32(xla):
    """Return an optimizer that keeps float32."""
    return TPUOptimizer(settings(**F32), xla=xla)


class TestTPUBackend:
    def test_tpu_backend_creation(self, xla):
        backend = TPUBackend(xla=xla)
        assert (backend.is_available, backend.degraded) == (True, None)
        assert (backend.device, backend.world_size) == (xla.device(), xla.world_size)
        info = backend.get_device_info()
        assert (info["vendor"], info["backend"]) == ("google", "tpu")
        assert (backend.rank, backend.hardware.has("bf16")) == (xla.ordinal, True)

    def test_tpu_backend_model_preparation(self, xla, x):
        given = {"level": "aggressive", "sample_inputs": (x,), "limit": BF16}
        prepared = rules.keeps_the_numbers(TPUBackend(xla=xla).prepare_model, mlp(), x, **given)
        assert {"set_mode", "bfloat16", "compile"} <= set(prepared.applied)

    def test_tpu_backend_data_preparation(self, xla):
        backend = TPUBackend(xla=xla)
        data = {"ids": torch.arange(6), "rest": [torch.ones(2), (torch.zeros(1), "name")]}
        moved = backend.prepare_data(data)
        assert moved["rest"][1][1] == "name"
        assert moved["ids"].device == moved["rest"][0].device == backend.device
        assert moved["ids"].tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(exceptions.TPUDataError, match="no tensor in list"):
            backend.prepare_data(["a", 1])

    def test_tpu_backend_memory_stats(self):
        stats = TPUBackend(xla=stand_in()).get_memory_stats()
        assert (stats["total_bytes"], stats["allocated_bytes"]) == (LIMIT, USED)
        assert (stats["free_bytes"], stats["peak_bytes"]) == (LIMIT - USED, fake_xla.PEAK)

    def test_tpu_backend_synchronization(self):
        fake = FakeXLA()
        TPUBackend(xla=stand_in(fake)).synchronize()
        assert (fake.steps, fake.waits) == (1, 1)

    def test_tpu_backend_cache_management(self, xla, x):
        backend = TPUBackend(xla=xla)
        backend.prepare_model(mlp(), level="aggressive", sample_inputs=(x,))
        assert backend.compiler.stats.cache.size == 1
        backend.empty_cache()
        assert (backend.compiler.stats.cache.size, backend.compiler.stats.compiled) == (0, 1)


class TestTPUOptimizer:
    def test_tpu_optimizer_creation(self, xla):
        optimizer = TPUOptimizer(xla=xla)
        assert (optimizer.backend.device, optimizer.stats.levels) == (xla.device(), {})

    def test_tpu_optimizer_conservative_optimization(self, float32):
        rules.lowest_is_bit_for_bit(float32, "conservative")

    def test_tpu_optimizer_balanced_optimization(self, float32):
        rules.norms_are_folded(float32, "balanced", 1e-4)

    def test_tpu_optimizer_aggressive_optimization(self, xla, x):
        given = mlp(), x, "aggressive", (x,)
        result = rules.keeps_the_numbers(TPUOptimizer(xla=xla).optimize, *given, limit=BF16)
        assert {p.dtype for p in result.optimized_model.parameters()} == {torch.bfloat16}
        assert isinstance(result.optimized_model, tpu.CompiledModel)

    def test_tpu_optimizer_inference_optimization(self, xla, x):
        result = TPUOptimizer(xla=xla).optimize_for_inference(mlp(), (x,))
        assert isinstance(result.optimized_model, nn.Module)
        assert result.optimized_model.training is False
        assert {p.device.type for p in result.optimized_model.parameters()} == {xla.device().type}
        assert result.compilation_time > 0

    def test_tpu_optimizer_training_optimization(self, xla):
        rules.training_keeps_precision(TPUOptimizer(xla=xla))

    def test_tpu_optimizer_stats(self, xla, x):
        optimizer = TPUOptimizer(xla=xla)
        for level in ("aggressive", "aggressive", "conservative"):
            optimizer.optimize(mlp(), level, (x,))
        assert optimizer.stats.levels == {"aggressive": 2, "conservative": 1}
        assert optimizer.stats.applied["bfloat16"] == 2

    def test_invalid_optimization_level(self, float32):
        rules.unknown_levels_are_balanced(float32)


class TestXLACompiler:
    def test_xla_compiler_creation(self, xla):
        stats = XLACompiler(TPUConfig(), xla).stats
        assert (stats.cache.capacity, stats.compiled, stats.seconds) == (100, 0, 0)

    def test_xla_compiler_model_compilation(self, xla, x):
        model = mlp()
        expected = in_float64(model, x)
        compiled = XLACompiler(TPUConfig(), xla).compile_model(model, (x,))
        assert isinstance(compiled, nn.Module)
        assert compiled.training is False
        assert compiled.compilation.shapes == (((8, 128), torch.float32),)
        assert_close(compiled(x), expected, BF16 if xla.device().type == "xla" else 1e-5)

    def test_xla_compiler_inference_optimization(self, xla, x):
        compiled = XLACompiler(TPUConfig(), xla).optimize_for_inference(mlp(), (x,))
        assert not any(p.requires_grad for p in compiled.parameters())
        assert compiled(x).requires_grad is False

    def test_xla_compiler_training_optimization(self):
        fake, model = FakeXLA(), nn.Linear(4, 2)
        weight, bias = (p.detach().double() for p in model.parameters())
        inputs, target = torch.randn(6, 4), torch.randn(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = XLACompiler(TPUConfig(), stand_in(fake)).optimize_for_training(
            model, optimizer, nn.functional.mse_loss
        )
        for steps in (1, 2):
            loss = step(inputs, target)
            rest = inputs.double() @ weight.T + bias - target.double()  # d mse / d y = rest / 6
            weight, bias = weight - rest.T @ inputs.double() / 60, bias - rest.sum(dim=0) / 60
            assert_close(loss, rest.square().mean())
            assert_close(model.weight, weight)
            assert_close(model.bias, bias)
            assert fake.steps == steps

    def test_xla_compiler_stats(self):
        compiler, model = XLACompiler(TPUConfig(), stand_in()), mlp()
        made = [compiler.compile_model(model.train(), rows(count)) for count in (2, 3, 2)]
        assert not any(one.training for one in made)
        stats = compiler.stats
        assert (stats.compiled, stats.cache.hits, stats.cache.misses) == (2, 1, 2)
        seconds = [one.compilation.seconds for one in made[:2]]
        assert stats.seconds == pytest.approx(sum(seconds))

    def test_xla_compiler_benchmark(self, xla, x):
        compiler = XLACompiler(TPUConfig(), xla)
        spread = compiler.benchmark(compiler.compile_model(mlp(), (x,)), (x,), iterations=5)
        assert 0 < spread.low <= spread.median <= spread.high


class TestTPUMemoryManager:
    def test_memory_manager_creation(self, xla):
        manager = TPUMemoryManager(TPUConfig(), xla)
        assert (manager.device, manager.history) == (xla.device(), ())

    def test_tensor_allocation(self):
        manager = TPUMemoryManager(TPUConfig(memory_fraction=0.5), stand_in())
        assert manager.free_bytes() == LIMIT // 2 - USED
        tensor = manager.allocate_tensor((3, 5), torch.bfloat16)
        assert (tensor.shape, tensor.dtype) == ((3, 5), torch.bfloat16)
        with pytest.raises(exceptions.TPUOutOfMemory, match="are free"):
            manager.allocate_tensor((2**28, 1))  # 1 GiB, but 128 GiB in tiles

    def test_tensor_layout_optimization(self, xla):
        tensor = torch.arange(12.0).reshape(3, 4).T
        moved = TPUMemoryManager(TPUConfig(), xla).optimize_tensor_layout(tensor)
        assert moved.is_contiguous()
        assert torch.equal(moved.cpu(), tensor)
        layout = tpu.tiled((4, 3), torch.float32)
        assert (layout.bytes, layout.tiled_bytes) == (48, 8 * 128 * 4)
        assert layout.waste == pytest.approx(1 - 48 / 4096)
        assert tpu.tiled((2, 16, 256), torch.bfloat16).waste == 0

    def test_memory_pool_creation(self, xla):
        manager = TPUMemoryManager(TPUConfig(), xla, pool_limit_bytes=1024)
        stats = manager.get_pool_stats("a")
        assert (stats["tensor_count"], stats["limit_bytes"]) == (0, 1024)

    def test_memory_pool_operations(self):
        rules.pools_are_bounded(TPUMemoryManager(TPUConfig(), stand_in(), pool_limit_bytes=1200))

    def test_memory_stats(self):
        told = TPUMemoryManager(TPUConfig(), stand_in()).memory()
        assert (told.allocated, told.total, told.free) == (USED, LIMIT, LIMIT - USED)

    def test_memory_optimization(self, xla):
        model, manager = mlp(), TPUMemoryManager(TPUConfig(), xla)
        told = manager.optimize_model_memory(model, torch.bfloat16)
        assert told["freed_bytes"] == 2 * sum(p.numel() for p in model.parameters())


class TestXLAIntegration:
    def test_xla_device_manager(self, xla):
        manager = tpu.XLADeviceManager(xla)
        assert manager.require_tpu() == xla.device()
        assert manager.info()["type"] == "TPU"
        with pytest.raises(exceptions.TPUNotFound, match="computes on CPU"):
            tpu.XLADeviceManager(stand_in(FakeXLA(hardware="CPU"))).require_tpu()

    def test_xla_distributed_training(self):
        distributed = tpu.XLADistributedTraining(stand_in(FakeXLA(world=4)))
        assert torch.equal(distributed.shard(torch.arange(8)), torch.tensor([0, 1]))
        with pytest.raises(exceptions.TPUDistributedError, match="9 rows"):
            distributed.shard(torch.arange(9))
        for world in (1, 2, 8):
            x = torch.randn(5)
            mean = tpu.XLADistributedTraining(stand_in(FakeXLA(world=world))).mean(x)
            assert_close(mean, x.double() * (world + 1) / 2)  # the mean of 1, 2, ..., world times x

    def test_xla_optimizations(self):
        fake = FakeXLA()
        optimizations = XLAOptimizations(TPUConfig(xla_optimization_level=0), stand_in(fake))
        result = optimizations.set_matmul_precision()
        assert (result.applied, result.evidence) == (True, "default -> highest")
        assert fake.precision == "highest"
        assert optimizations.set_matmul_precision().reason == "already highest"

    def test_xla_utilities(self):
        fake = FakeXLA()
        utilities = tpu.XLAUtilities(stand_in(fake))
        assert utilities.compilation_metrics() == {"count": 0, "seconds": 0.0}
        for count in (1, 2, 3):
            with fake.lazily():
                torch.ones(count).add(1)
                fake.step()
        expected = {"count": 3, "seconds": 3 * fake_xla.COMPILE_SECONDS}
        assert utilities.compilation_metrics() == expected

    def test_create_xla_integration(self, xla):
        parts = tpu.create_xla_integration(TPUConfig(), xla)
        kinds = (tpu.XLADeviceManager, tpu.XLADistributedTraining, XLAOptimizations)
        assert tuple(type(part) for part in parts) == kinds
        with pytest.raises(exceptions.TPUConfigurationError, match="enabled is False"):
            tpu.create_xla_integration(TPUConfig(enabled=False), xla)


class TestTPUValidation:
    def test_tpu_configuration_validation(self):
        chip = stand_in(FakeXLA(kind="TPU v5 lite"))
        with pytest.raises(exceptions.TPUConfigurationError, match="version is v4"):
            TPUBackend(settings(version="v4"), xla=chip)
        assert validate_config(TPUConfig(version="v5e"), chip).passed
        found = validate_config(TPUConfig(version="v4", memory_gb=20), chip)
        assert found.errors == (
            "version is v4, the chip is v5e",
            "memory_gb is 20, a v5e chip has 16",
        )
        many = stand_in(FakeXLA(world=16))
        told = validate_config(TPUConfig(topology="single"), many).errors
        assert told == ("topology is single, the job has 16 devices",)

    def test_tpu_model_validation(self):
        assert validate_model(nn.Linear(256, 256), TPUConfig()).warnings == ()
        model = nn.Linear(128, 128)
        model.register_buffer("phase", torch.zeros(2, dtype=torch.complex128))
        refusal = "phase is torch.complex128, which a TPU does not have"
        assert validate_model(model, TPUConfig()).errors == (refusal,)
        with pytest.raises(exceptions.TPUModelError, match=refusal):
            TPUBackend(xla=stand_in()).prepare_model(model)
        with pytest.raises(exceptions.TPUModelError, match="got int"):
            validate_model(3, TPUConfig())

    def test_tpu_validation_with_warnings(self):
        found = validate_model(nn.Linear(130, 2), TPUConfig())
        assert found.passed
        assert found.warnings == ("weight (2, 130) leaves 87% of its tiles empty",)
        wide = validate_model(nn.Linear(128, 128, dtype=torch.float64), TPUConfig()).warnings
        assert "weight is float64, which a TPU computes in software" in wide
        slow = TPUConfig(dynamic_shapes=True, precision="float32", xla_optimization_level=0)
        assert len(validate_config(slow, stand_in()).warnings) == 2


class TestTPUConfigurationModes:
    @pytest.fixture
    def prepared(self, xla):
        """Return a function that prepares the perceptron by a preset."""

        def prepare(preset, x=None, **options):
            inputs = () if x is None else (x,)
            return TPUBackend(preset(), xla=xla).prepare_model(
                mlp(), sample_inputs=inputs, **options
            )

        return prepare

    def test_inference_mode_tpu(self, prepared, x):
        made = prepared(Config.for_inference, x)
        assert (made.level, made.model.training) == ("aggressive", False)

    def test_training_mode_tpu(self, prepared):
        made = prepared(Config.for_training, training=True)
        assert (made.level, made.model.training) == ("balanced", True)

    def test_development_mode_tpu(self, prepared):
        made = prepared(Config.for_development)
        assert made.level == "conservative"
        assert {one.name for one in made.passes} == {"to_device", "set_mode"}

    def test_tpu_config_serialization_modes(self):
        rules.survives_a_dictionary(settings(version="v6e", cache_size=5))


class TestTPUErrorHandling:
    def test_invalid_tpu_version(self):
        with pytest.raises(ValueError, match="v4, v5e, v5p, v6e, v7"):
            TPUConfig(version="v3")

    def test_invalid_memory_fraction(self):
        with pytest.raises(ValueError, match=r"memory_fraction must be in \(0, 1\], got 1.5"):
            TPUConfig(memory_fraction=1.5)

    def test_missing_sample_inputs(self, xla):
        with pytest.raises(exceptions.XLACompilationError, match="give sample_inputs"):
            XLACompiler(TPUConfig(), xla).compile_model(mlp(), ())
        prepared = TPUBackend(xla=xla).prepare_model(mlp(), level="aggressive")
        assert "sample_inputs" in prepared.result("compile").reason

    def test_backend_without_xla(self):
        try:
            real = xla_module.load()
        except exceptions.XLANotAvailable:
            real = None
        if real is not None and real.is_tpu:
            backend = TPUBackend()
            assert backend.device.type == "xla"
            assert backend.require_device() == backend.device
            return
        with pytest.warns(UserWarning, match="TPUBackend works on the CPU"):
            backend = TPUBackend()
        assert (backend.is_available, backend.device) == (False, torch.device("cpu"))
        assert "torch_xla" in backend.degraded
        for ask in (backend.require_device, lambda: TPUBackend(settings(enabled=True))):
            with pytest.raises(exceptions.XLANotAvailable, match="torch_xla"):
                ask()
        rules.keeps_the_numbers(backend.prepare_model, mlp(), torch.randn(3, 128))


class TestTPUErrorPaths:
    """Limits of memory and caches, and refusals."""

    def test_lru_cache_eviction(self):
        rules.the_least_recently_used_goes(used=())

    def test_compilation_cache_limits(self):
        compiler, model = XLACompiler(TPUConfig(cache_size=2), stand_in()), mlp()
        for count in (1, 2, 3, 1):
            compiler.compile_model(model, rows(count))
        assert (compiler.stats.cache.size, compiler.stats.cache.evictions) == (2, 2)
        assert compiler.stats.compiled == 4

    def test_strict_validation_mode(self):
        strict = TPUConfig(strict_validation=True)
        with pytest.raises(exceptions.TPUModelError, match="87%"):
            validate_model(nn.Linear(130, 2), strict)
        with pytest.raises(exceptions.TPUConfigurationError, match="dynamic_shapes"):
            validate_config(strict.update(dynamic_shapes=True), stand_in())
        with pytest.raises(exceptions.TPUOptimizationError, match="sample_inputs"):
            TPUOptimizer(settings(strict_validation=True), xla=stand_in()).optimize(
                nn.Linear(128, 128), "aggressive"
            )

    def test_custom_exceptions_importable(self):
        kinds = [k for _, k in inspect.getmembers(exceptions, inspect.isclass)]
        assert all(issubclass(kind, exceptions.TPUError) for kind in kinds)
        assert issubclass(exceptions.XLACompilationTimeout, exceptions.XLACompilationError)
        assert issubclass(exceptions.TPUOutOfMemory, exceptions.TPUMemoryError)

    def test_memory_stats_with_retention(self):
        clock = Clock()
        manager = TPUMemoryManager(TPUConfig(history_retention_s=60), stand_in(), clock=clock)
        for clock.now in (0.0, 50.0, 70.0):
            manager.memory()
        assert [when for when, _ in manager.history] == [50.0, 70.0]

    def test_configurable_tpu_memory_capacity(self):
        own = TPUMemoryManager(TPUConfig(memory_gb=4), stand_in()).memory()
        assert (own.total, own.free) == (4 * 2**30, 2**30)
        assert TPUMemoryManager(TPUConfig(version="v5p"), stand_in()).memory().total == LIMIT

    def test_cache_utils_statistics(self):
        cache = LRUCache(4)
        cache.put("a", 1)
        assert [cache.get(key) for key in "aab"] == [1, 1, None]
        assert (cache.stats.hits, cache.stats.misses) == (2, 1)

    def test_cache_eviction_behavior(self):
        rules.the_least_recently_used_goes(used="a")

    def test_optimizer_with_invalid_level(self, xla):
        with pytest.warns(UserWarning, match="using balanced"):
            result = TPUOptimizer(xla=xla).optimize(mlp(), "O7")
        assert "known: conservative, balanced, aggressive" in result.warnings[0]

    def test_memory_pool_operations(self):
        manager = TPUMemoryManager(TPUConfig(), stand_in(), pool_limit_bytes=100)
        for size in (20, 10):  # 120 bytes: the oldest goes
            manager.return_to_pool(torch.empty(size), "a")
        stats = manager.get_pool_stats("a")
        assert (stats["tensor_count"], stats["bytes"], stats["evictions"]) == (1, 40, 1)

    def test_compilation_mode_configuration(self):
        for mode in ("pjit", "xla"):
            with pytest.raises(exceptions.TPUConfigurationError, match=mode):
                XLACompiler(TPUConfig(compilation_mode=mode), stand_in())

    def test_logging_not_print(self, capsys, xla, x):
        TPUBackend(xla=xla).optimize_for_inference(mlp(), (x,))
        assert capsys.readouterr().out == ""
        sources = list(Path(tpu.__file__).parent.glob("*.py"))
        assert len(sources) >= 8
        assert not [path.name for path in sources if "print(" in path.read_text()]

    def test_xla_optimization_levels(self, xla):
        names = []
        for level in range(3):
            XLAOptimizations(TPUConfig(xla_optimization_level=level), xla).set_matmul_precision()
            names.append(xla.matmul_precision)
        assert names == ["highest", "high", "default"]

    def test_cache_clear_operations(self):
        compiler, model = XLACompiler(TPUConfig(), stand_in()), mlp()
        first = compiler.compile_model(model, rows(2))
        compiler.clear_cache()
        assert compiler.compile_model(model, rows(2)) is not first
        assert (compiler.stats.cache.hits, compiler.stats.compiled) == (0, 2)

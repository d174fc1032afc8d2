"""TPU backend: on a TPU by the real torch_xla, elsewhere by a stand-in on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites import fake_xla
from suites.backend_models import in_float64, mlp, resnet
from suites.fake_xla import LIMIT, USED, FakeXLA, stand_in
from suites.numerics import assert_close
from suites.tpu_error_paths import F32, ErrorPaths, settings
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

BF16 = 2e-2  # against float64: weights and products of 8 bits


@pytest.fixture
def xla():
    """The real one on a TPU."""
    return fake_xla.here()


@pytest.fixture
def x(xla):
    """[8, 128] on the device."""
    return torch.randn(8, 128).to(xla.device())


class TestTPUBackend:
    def test_tpu_backend_creation(self, xla):
        backend = TPUBackend(xla=xla)
        assert backend.is_available
        assert backend.degraded is None
        assert backend.device == xla.device()
        info = backend.get_device_info()
        assert (info["vendor"], info["backend"]) == ("google", "tpu")
        assert (backend.rank, backend.world_size) == (xla.ordinal, xla.world_size)
        assert backend.hardware.has("bf16")

    def test_tpu_backend_model_preparation(self, xla, x):
        model = mlp()
        expected = in_float64(model, x)
        prepared = TPUBackend(xla=xla).prepare_model(model, sample_inputs=(x,), level="aggressive")
        assert {"set_mode", "bfloat16", "compile"} <= set(prepared.applied)
        assert_close(prepared.model(x), expected, BF16)

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
        assert backend.compiler.stats.cache.size == 0
        assert backend.compiler.stats.compilations == 1


class TestTPUOptimizer:
    def test_tpu_optimizer_creation(self, xla):
        optimizer = TPUOptimizer(xla=xla)
        assert optimizer.backend.device == xla.device()
        assert optimizer.stats.levels == {}

    def test_tpu_optimizer_conservative_optimization(self, xla, x):
        model = mlp().eval()
        expected = model(x.cpu())
        result = TPUOptimizer(settings(**F32), xla=xla).optimize(model, "conservative")
        assert result.optimization_level == "conservative"
        assert "bfloat16" not in {one.name for one in result.passes}
        # this level leaves products as XLA has them: on a TPU one pass of bfloat16
        limit = BF16 if xla.device().type == "xla" else 1e-6
        assert_close(result.optimized_model(x), expected, limit)

    def test_tpu_optimizer_balanced_optimization(self, xla):
        model, image = resnet(), torch.randn(2, 3, 16, 16)
        expected = in_float64(model, image)
        result = TPUOptimizer(settings(**F32), xla=xla).optimize(model, "balanced")
        assert "fold_conv_bn" in result.optimizations_applied
        assert not any(isinstance(m, nn.BatchNorm2d) for m in result.optimized_model.modules())
        assert_close(result.optimized_model(image.to(xla.device())), expected, 1e-4)

    def test_tpu_optimizer_aggressive_optimization(self, xla, x):
        model = mlp()
        expected = in_float64(model, x)
        result = TPUOptimizer(xla=xla).optimize(model, "aggressive", (x,))
        assert {p.dtype for p in result.optimized_model.parameters()} == {torch.bfloat16}
        assert isinstance(result.optimized_model, tpu.CompiledModel)
        assert_close(result.optimized_model(x), expected, BF16)

    def test_tpu_optimizer_inference_optimization(self, xla, x):
        result = TPUOptimizer(xla=xla).optimize_for_inference(mlp(), (x,))
        assert isinstance(result.optimized_model, nn.Module)
        assert result.optimized_model.training is False
        assert {p.device.type for p in result.optimized_model.parameters()} == {xla.device().type}
        assert result.compilation_time > 0

    def test_tpu_optimizer_training_optimization(self, xla):
        result = TPUOptimizer(xla=xla).optimize_for_training(mlp())
        assert result.optimized_model.training is True
        assert {p.dtype for p in result.optimized_model.parameters()} == {torch.float32}
        assert all(p.requires_grad for p in result.optimized_model.parameters())

    def test_tpu_optimizer_stats(self, xla, x):
        optimizer = TPUOptimizer(xla=xla)
        optimizer.optimize(mlp(), "aggressive", (x,))
        optimizer.optimize(mlp(), "aggressive", (x,))
        optimizer.optimize(mlp(), "conservative")
        assert optimizer.stats.levels == {"aggressive": 2, "conservative": 1}
        assert optimizer.stats.applied["bfloat16"] == 2

    def test_invalid_optimization_level(self, xla):
        with pytest.warns(UserWarning, match="unknown optimization level 'ludicrous'"):
            result = TPUOptimizer(xla=xla).optimize(mlp(), "ludicrous")
        assert result.optimization_level == "balanced"
        assert "ludicrous" in result.warnings[0]


class TestXLACompiler:
    def test_xla_compiler_creation(self, xla):
        compiler = XLACompiler(TPUConfig(), xla)
        assert compiler.stats.cache.capacity == 100
        assert (compiler.stats.compilations, compiler.stats.history) == (0, ())

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
        loss = step(inputs, target)
        rest = inputs.double() @ weight.T + bias - target.double()  # d mse / d y = 2 rest / 12
        assert_close(loss, rest.square().mean())
        assert_close(model.weight, weight - 0.1 * (2 * rest / 12).T @ inputs.double())
        assert_close(model.bias, bias - 0.1 * (2 * rest / 12).sum(dim=0))
        assert fake.steps == 1

    def test_xla_compiler_stats(self):
        compiler, model = XLACompiler(TPUConfig(), stand_in()), mlp()
        for rows in (2, 3, 2):
            compiled = compiler.compile_model(model.train(), (torch.randn(rows, 128),))
            assert not compiled.training
        stats = compiler.stats
        assert (stats.compilations, stats.cache.hits, stats.cache.misses) == (2, 1, 2)
        assert [one.shapes[0][0] for one in stats.history] == [(2, 128), (3, 128)]
        assert stats.seconds == pytest.approx(sum(one.seconds for one in stats.history))

    def test_xla_compiler_benchmark(self, xla, x):
        compiler = XLACompiler(TPUConfig(), xla)
        spread = compiler.benchmark(compiler.compile_model(mlp(), (x,)), (x,), iterations=5)
        assert 0 < spread.low <= spread.median <= spread.high


class TestTPUMemoryManager:
    def test_memory_manager_creation(self, xla):
        manager = TPUMemoryManager(TPUConfig(), xla)
        assert manager.device == xla.device()
        assert manager.history == ()

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
        manager = TPUMemoryManager(TPUConfig(), stand_in())
        first = manager.allocate_tensor((4, 8), pool_id="a")
        manager.return_to_pool(first, "a")
        assert manager.get_pool_stats("a")["bytes"] == 128
        again = manager.allocate_tensor((4, 8), pool_id="a")
        assert again.data_ptr() == first.data_ptr()
        stats = manager.get_pool_stats("a")
        assert (stats["hits"], stats["misses"]) == (1, 1)

    def test_memory_stats(self):
        told = TPUMemoryManager(TPUConfig(), stand_in()).memory()
        assert (told.used, told.limit, told.free) == (USED, LIMIT, LIMIT - USED)

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
        model = nn.Linear(3, 2)
        with pytest.raises(exceptions.TPUDistributedError, match="backward first"):
            distributed.average_gradients(model)
        model(torch.ones(2, 3)).sum().backward()
        expected = [2.5 * p.grad for p in model.parameters()]  # of 1, 2, 3 and 4 times ours
        assert distributed.average_gradients(model) == 2
        for parameter, wanted in zip(model.parameters(), expected, strict=True):
            assert torch.equal(parameter.grad, wanted)
        assert torch.equal(distributed.shard(torch.arange(8)), torch.tensor([0, 1]))
        with pytest.raises(exceptions.TPUDistributedError, match="9 rows"):
            distributed.shard(torch.arange(9))

    def test_xla_optimizations(self):
        fake = FakeXLA()
        config = TPUConfig(xla_optimization_level=0)
        result = XLAOptimizations(config, stand_in(fake)).set_matmul_precision()
        assert (result.applied, result.evidence) == (True, "default -> highest")
        assert fake.precision == "highest"
        again = XLAOptimizations(config, stand_in(fake)).set_matmul_precision()
        assert again.reason == "already highest"

    def test_xla_utilities(self):
        fake = FakeXLA()
        utilities = tpu.XLAUtilities(stand_in(fake))
        assert utilities.compilation_metrics() == {"count": 0, "seconds": 0.0}
        with fake.lazily():
            torch.ones(2).add(1)
            fake.step()
        expected = {"count": 1, "seconds": fake_xla.COMPILE_SECONDS}
        assert utilities.compilation_metrics() == expected
        told = {"PJRT_DEVICE": "TPU", "HOME": "/root", "XLA_FLAGS": "-a"}
        assert utilities.environment(told) == {"PJRT_DEVICE": "TPU", "XLA_FLAGS": "-a"}

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

    def test_tpu_model_validation(self):
        assert validate_model(nn.Linear(256, 256), TPUConfig()).warnings == ()
        model = nn.Linear(128, 128)
        model.register_buffer("phase", torch.zeros(2, dtype=torch.complex128))
        assert validate_model(model, TPUConfig()).errors == (
            "phase is torch.complex128, which a TPU does not have",
        )
        with pytest.raises(exceptions.TPUModelError, match="got int"):
            validate_model(3, TPUConfig())

    def test_tpu_validation_with_warnings(self):
        found = validate_model(nn.Linear(130, 2), TPUConfig())
        assert found.passed
        assert found.warnings == ("weight (2, 130) leaves 87% of its tiles empty",)
        slow = TPUConfig(dynamic_shapes=True, precision="float32", xla_optimization_level=0)
        assert len(validate_config(slow, stand_in()).warnings) == 2


class TestTPUConfigurationModes:
    def test_inference_mode_tpu(self, xla, x):
        backend = TPUBackend(Config.for_inference(), xla=xla)
        prepared = backend.prepare_model(mlp(), sample_inputs=(x,))
        assert (prepared.level, prepared.model.training) == ("aggressive", False)

    def test_training_mode_tpu(self, xla):
        prepared = TPUBackend(Config.for_training(), xla=xla).optimize_for_training(mlp())
        assert (prepared.level, prepared.model.training) == ("balanced", True)

    def test_development_mode_tpu(self, xla):
        prepared = TPUBackend(Config.for_development(), xla=xla).prepare_model(mlp())
        assert prepared.level == "conservative"
        assert {one.name for one in prepared.passes} == {"to_device", "set_mode"}

    def test_tpu_config_serialization_modes(self):
        for preset in (Config.for_inference, Config.for_training, Config.for_development):
            config = preset(hardware={"tpu": {"version": "v6e", "cache_size": 5}})
            assert Config.from_dict(config.to_dict()) == config


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
        assert not backend.is_available
        assert backend.device == torch.device("cpu")
        assert "torch_xla" in backend.degraded
        with pytest.raises(exceptions.XLANotAvailable):
            TPUBackend(settings(enabled=True))
        with pytest.raises(exceptions.XLANotAvailable, match="torch_xla"):
            backend.require_device()
        model, x = mlp(), torch.randn(3, 128)
        assert_close(backend.prepare_model(model).model(x), in_float64(model, x))


class TestTPUErrorPaths(ErrorPaths):
    """Limits, caches and refusals: the tests are in `suites.tpu_error_paths`."""

"""The last class of the TPU suite, which would not fit into its file."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from suites.backend_models import in_float64, mlp
from suites.fake_xla import LIMIT, stand_in
from suites.numerics import assert_close
from torchbridge.backends import errors as exceptions
from torchbridge.backends import tpu
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

F32 = {"precision": "float32", "xla_optimization_level": 0}


def settings(**changes) -> Config:
    """A config with these TPU settings."""
    return Config().update(hardware={"tpu": changes})


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class ErrorPaths:
    """Limits, caches and refusals. `xla` and `x` are the suite's fixtures."""

    def test_lru_cache_eviction(self):
        cache = LRUCache(2)
        for key in "abc":
            cache.put(key, key.upper())
        assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, "B", "C")
        assert cache.stats.evictions == 1

    def test_compilation_cache_limits(self):
        compiler, model = XLACompiler(TPUConfig(cache_size=2), stand_in()), mlp()
        for rows in (1, 2, 3, 1):
            compiler.compile_model(model, (torch.randn(rows, 128),))
        assert (compiler.stats.cache.size, compiler.stats.cache.evictions) == (2, 2)
        assert compiler.stats.compilations == 4

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
        assert (own.limit, own.free) == (4 * 2**30, 2**30)
        assert TPUMemoryManager(TPUConfig(version="v5p"), stand_in()).memory().limit == LIMIT

    def test_cache_utils_statistics(self):
        cache = LRUCache(4)
        cache.put("a", 1)
        assert [cache.get(key) for key in "aab"] == [1, 1, None]
        assert (cache.stats.hits, cache.stats.misses) == (2, 1)
        assert cache.stats.hit_rate == pytest.approx(2 / 3)

    def test_cache_eviction_behavior(self):
        cache = LRUCache(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.get("a")  # now the newest
        cache.put("c", 3)
        assert ("a" in cache, "b" in cache, "c" in cache) == (True, False, True)

    def test_optimizer_with_invalid_level(self, xla, x):
        model = mlp()
        expected = in_float64(model, x)
        with pytest.warns(UserWarning, match="using balanced"):
            result = TPUOptimizer(settings(**F32), xla=xla).optimize(model, "O7")
        assert_close(result.optimized_model(x), expected, 1e-4)

    def test_memory_pool_operations(self):
        manager = TPUMemoryManager(TPUConfig(), stand_in(), pool_limit_bytes=100)
        manager.return_to_pool(torch.empty(20), "a")
        manager.return_to_pool(torch.empty(10), "a")  # 120 bytes: the oldest goes
        stats = manager.get_pool_stats("a")
        assert (stats["tensor_count"], stats["bytes"], stats["evictions"]) == (1, 40, 1)
        assert manager.clear_pool("a") == 40

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
        first = compiler.compile_model(model, (torch.randn(2, 128),))
        compiler.clear_cache()
        again = compiler.compile_model(model, (torch.randn(2, 128),))
        assert first is not again
        assert (compiler.stats.cache.hits, compiler.stats.compilations) == (0, 2)

"""Checks that hold for the backends of all vendors, called with a vendor's own classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from suites.backend_models import in_float64, mlp, resnet
from suites.numerics import assert_close
from torchbridge import memory
from torchbridge.backends import errors
from torchbridge.backends.backend import Backend, OptimizationResult, Optimizer
from torchbridge.backends.memory import MemoryManager
from torchbridge.config import Config
from torchbridge.lru import LRUCache
from torchbridge.passes import Prepared

LIMITS = (1e-5, 1e-4, 3e-2)  # of the three levels: float32's rounding twice, and 16 bits'
PRESETS = (Config.for_inference, Config.for_training, Config.for_development)


class Stuck(nn.Linear):
    """A layer that raises when its mode is changed."""

    def train(self, mode=True):
        raise RuntimeError("stuck")


def settings(vendor: str, **changes) -> Config:
    """Return a config with these settings of a vendor."""
    return Config().update(hardware={vendor: changes})


def keeps_the_numbers(
    prepare: Callable[..., Prepared | OptimizationResult],
    model: nn.Module,
    x: Tensor,
    *given: Any,
    limit: float | None = None,
    **options: Any,
) -> Any:
    """Check that the prepared model's outputs for x equal the original's in float64.

    Returns the result of `prepare`.
    """
    expected = in_float64(model, x)
    made = prepare(model, *given, **options)
    changed = made.model if isinstance(made, Prepared) else made.optimized_model
    assert_close(changed(x), expected, limit)
    return made


def a_failing_pass_is_told(backend: Backend, error: type[Exception]) -> None:
    """Check that the error of a failing pass names the model and has the cause."""
    with pytest.raises(error, match="Stuck: stuck") as caught:
        backend.prepare_model(Stuck(2, 2))
    assert isinstance(caught.value.__cause__, RuntimeError)


def what_does_not_fit_is_refused(manager: MemoryManager, error: type[Exception]) -> None:
    """Check that a too large allocation raises an error that gives its bytes.

    The manager stays usable and counts the refusal.
    """
    with pytest.raises(error, match="4,503,599,627,370,496 bytes"):
        manager.allocate_tensor((2**50,))
    assert manager.allocate_tensor((2, 2)).shape == (2, 2)
    assert manager.allocation_summary().refused == 1
    assert issubclass(error, errors.MemoryAllocationError)


def levels_keep_the_numbers(optimizer: Optimizer, levels: tuple[str, ...]) -> None:
    """Check that the outputs at each level are within the level's tolerance."""
    device = optimizer.backend.device
    x = torch.randn(2, 3, 16, 16, device=device)
    for level, limit in zip(levels, LIMITS, strict=True):
        result = keeps_the_numbers(optimizer.optimize, resnet(), x, level, limit=limit)
        assert result.optimization_level == level


def lowest_is_bit_for_bit(optimizer: Optimizer, level: str) -> None:
    """Check that the lowest level changes only device and mode, and no bit of the outputs."""
    device = optimizer.backend.device
    model, x = mlp().to(device).eval(), torch.randn(4, 128, device=device)
    expected = model(x)
    result = optimizer.optimize(model.train(), level)
    assert {one.name for one in result.passes} == {"to_device", "set_mode"}
    assert torch.equal(result.optimized_model(x), expected)


def norms_are_folded(optimizer: Optimizer, level: str, limit: float = 1e-5) -> None:
    """Check that a level folds batch norms into convolutions, in float32, and keeps the outputs."""
    device = optimizer.backend.device
    x = torch.randn(2, 3, 16, 16, device=device)
    result = keeps_the_numbers(optimizer.optimize, resnet().to(device), x, level, limit=limit)
    evidence = {one.name: one.evidence for one in result.passes}
    assert evidence["fold_conv_bn"] == "5 batch norm(s) -> 0 batch norm(s)"
    assert {p.dtype for p in result.optimized_model.parameters()} == {torch.float32}


def unknown_levels_are_balanced(optimizer: Optimizer, name: str = "balanced") -> None:
    """Check that an unknown level warns, is replaced by `name`, and is noted in the result."""
    device = optimizer.backend.device
    x, optimize = torch.randn(4, 128, device=device), optimizer.optimize
    with pytest.warns(UserWarning, match="unknown optimization level 'ludicrous'"):
        result = keeps_the_numbers(optimize, mlp().to(device), x, "ludicrous", limit=1e-4)
    assert result.optimization_level == name
    assert "using balanced" in result.warnings[0]


def training_keeps_precision(optimizer: Optimizer) -> None:
    """Check that a model prepared for training is in training mode and float32, and learns."""
    device = optimizer.backend.device
    model = optimizer.optimize_for_training(resnet().eval()).optimized_model
    assert model.training
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == 5
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    model(torch.randn(4, 3, 16, 16).to(device)).square().mean().backward()
    assert all(p.grad.abs().max() > 0 for p in model[0].parameters())


def stats_are_the_devices(told: dict, device: torch.device) -> None:
    """Check that the memory figures agree with each other and with the device's."""
    assert told["total_bytes"] == memory.stats(device).total
    assert 0 < told["free_bytes"] <= told["total_bytes"]
    assert 0 <= told["allocated_bytes"] <= told["peak_bytes"]


def pools_are_bounded(manager: MemoryManager) -> None:
    """Check that a pool keeps at most `pool_limit_bytes`, three tensors of 400 bytes here.

    A kept tensor is reused with its old numbers.
    """
    tensors = [manager.allocate_tensor((100,), pool_id="a").fill_(3) for _ in range(5)]
    for tensor in tensors:
        manager.return_to_pool(tensor, "a")
    stats = manager.get_pool_stats("a")
    assert (stats["tensor_count"], stats["bytes"], stats["limit_bytes"]) == (3, 1200, 1200)
    assert (stats["evictions"], stats["misses"]) == (2, 5)
    again = manager.allocate_tensor((100,), pool_id="a")
    assert again.data_ptr() == tensors[-1].data_ptr()
    assert (again == 3).all()  # the pool does not clear the memory
    assert manager.allocate_tensor((100,), pool_id="b").data_ptr() != again.data_ptr()
    assert manager.get_pool_stats("a")["hits"] == 1
    assert manager.clear_pool("a") == 800


def the_least_recently_used_goes(used: Iterable[str]) -> None:
    """Check that a cache of two evicts the least recently used entry when a third is added.

    `used` are the keys that are read before.
    """
    cache = LRUCache(2)
    for key in "ab":
        cache.put(key, key)
    for key in used:
        assert cache.get(key) == key
    cache.put("c", "c")
    gone = "b" if used else "a"
    assert [key for key in "abc" if key in cache] == sorted({*"abc"} - {gone})
    assert (cache.get(gone), cache.get("c"), cache.stats.evictions) == (None, "c", 1)


def survives_a_dictionary(config: Config) -> None:
    """Check that a config, and each preset with its hardware, equals its copy from a dictionary."""
    assert Config.from_dict(config.to_dict()) == config
    own = {"hardware": config.hardware.to_dict()}
    for preset in PRESETS:
        assert Config.from_dict(preset(**own).to_dict()).hardware == config.hardware

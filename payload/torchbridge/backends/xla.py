"""XLA: the one place that talks to `torch_xla`, and models compiled by it.

torch_xla has old names and those of 2.9, found by probing:

old                          2.9
xm.xla_device()              torch_xla.device()
xm.get_xla_supported_devices torch_xla.devices()
xm.mark_step()               torch_xla.sync()
xm.xrt_world_size()          runtime.world_size()
xm.get_ordinal()             runtime.global_ordinal()
xm.xla_device_hw(device)     runtime.device_type()
kb_free, kb_total            bytes_used, bytes_limit, peak_bytes_used
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.backends.errors import (
    AllocationError,
    CompilationError,
    CompilationTimeout,
    ConfigurationError,
    NotAvailable,
    Recompilation,
)
from torchbridge.config import TPUCompilationMode, TPUConfig
from torchbridge.lru import CacheStats, LRUCache
from torchbridge.numbers import relative_error
from torchbridge.timing import Spread

INSTALL = "pip install 'torch~=2.9.0' 'torch_xla[tpu]~=2.9.0' (both of the same minor version)"


def load() -> XLA:
    """The installed torch_xla.

    Raises:
        NotAvailable: there is none, or it was built for another torch.
    """
    try:
        for part in ("core.xla_model", "debug.metrics"):
            importlib.import_module(f"torch_xla.{part}")
        for part in ("runtime", "backends"):  # old ones have neither
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"torch_xla.{part}")
    except (ImportError, OSError) as error:
        raise NotAvailable(f"torch_xla cannot be imported ({error}); {INSTALL}") from error
    return XLA(importlib.import_module("torch_xla"))


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Bytes of one device; `peak` None where torch_xla does not tell."""

    used: int
    limit: int
    peak: int | None = None

    @property
    def free(self) -> int:
        """Not in use."""
        return self.limit - self.used


@dataclass(frozen=True, slots=True)
class Compilations:
    """How many graphs XLA has compiled in this process, and the seconds that took."""

    count: int
    seconds: float


class XLA:
    """`torch_xla` by one set of names. Tests give a stand-in with the module's attributes."""

    def __init__(self, module: ModuleType | Any) -> None:
        self.module = module
        self._model = module.core.xla_model
        self._metrics = module.debug.metrics
        self._runtime = getattr(module, "runtime", None)

    @property
    def version(self) -> str:
        """Of torch_xla."""
        return str(getattr(self.module, "__version__", "unknown"))

    def device(self, index: int | None = None) -> torch.device:
        """One of this process's devices, the default one without an index."""
        return self._first((self.module, "device"), (self._model, "xla_device"))(index)

    def devices(self) -> list[torch.device]:
        """All devices of this process."""
        if hasattr(self.module, "devices"):
            return list(self.module.devices())
        return [torch.device(name) for name in self._model.get_xla_supported_devices()]

    def sync(self, *, wait: bool = False) -> None:
        """Hand all pending operations to XLA; `wait` until they are done."""
        self._first((self.module, "sync"), (self._model, "mark_step"))(wait=wait)

    def wait(self) -> None:
        """Until the devices are idle."""
        self._model.wait_device_ops()

    @property
    def world_size(self) -> int:
        """Processes (devices) in the job."""
        return self._first((self._runtime, "world_size"), (self._model, "xrt_world_size"))()

    @property
    def ordinal(self) -> int:
        """This process among them."""
        return self._first((self._runtime, "global_ordinal"), (self._model, "get_ordinal"))()

    @property
    def device_type(self) -> str:
        """What is behind the device: `TPU`, or `CPU` under PJRT_DEVICE=CPU."""
        if hasattr(self._runtime, "device_type"):
            return self._runtime.device_type() or "unknown"
        return self._model.xla_device_hw(self.device())

    @property
    def is_tpu(self) -> bool:
        """Is it a TPU that computes?"""
        return self.device_type == "TPU"

    @property
    def accelerator(self) -> str:
        """What the chip is called: `v5litepod-8` by the environment, else `TPU v5 lite` by PJRT."""
        told = os.environ.get("TPU_ACCELERATOR_TYPE")
        if told or not hasattr(self._model, "xla_device_kind"):
            return told or "unknown"
        return self._model.xla_device_kind(str(self.device()))

    def memory(self, device: torch.device) -> MemoryInfo:
        """Of one device.

        Raises:
            AllocationError: this runtime does not count (PJRT's CPU, say).
        """
        try:
            told = self._model.get_memory_info(device)
        except RuntimeError as error:
            raise AllocationError(f"{device} does not tell its memory: {error}") from error
        if "kb_total" in told:
            total, free = 1024 * told["kb_total"], 1024 * told["kb_free"]
            return MemoryInfo(total - free, total)
        peak = told.get("peak_bytes_used")
        return MemoryInfo(int(told["bytes_used"]), int(told["bytes_limit"]), peak)

    def compilations(self) -> Compilations:
        """So far."""
        told = self._metrics.metric_data("CompileTime")
        return Compilations(int(told[0]), told[1] / 1e9) if told else Compilations(0, 0.0)

    @property
    def matmul_precision(self) -> str | None:
        """What float32 products lose: default, high or highest; None where it cannot be set."""
        knobs = getattr(self.module, "backends", None)
        return knobs.get_mat_mul_precision() if hasattr(knobs, "get_mat_mul_precision") else None

    def set_matmul_precision(self, precision: str) -> None:
        """For all graphs compiled from now on; only where `matmul_precision` is not None."""
        self.module.backends.set_mat_mul_precision(precision)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over all processes."""
        return self._model.all_reduce("sum", tensor)

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients over all processes, then step."""
        self._model.optimizer_step(optimizer)

    def save(self, data: Any, path: str) -> None:
        """Write `data` as CPU tensors, from the first process only."""
        self._model.save(data, path)

    @staticmethod
    def _first(*places: tuple[Any, str]) -> Callable[..., Any]:
        """The first function that exists, newest name first."""
        for owner, name in places:
            if hasattr(owner, name):
                return getattr(owner, name)
        names = " or ".join(name for _, name in places)
        raise NotAvailable(f"this torch_xla has neither {names}; {INSTALL}")


TOLERANCE = {torch.float32: 2e-2, torch.bfloat16: 5e-2}  # a TPU multiplies float32 as bfloat16
Shapes = tuple[tuple[tuple[int, ...], torch.dtype], ...]


def shapes_of(inputs: Sequence[Tensor]) -> Shapes:
    """What a graph is compiled for."""
    return tuple((tuple(x.shape), x.dtype) for x in inputs)


@dataclass(frozen=True, slots=True)
class Compilation:
    """One model compiled for one set of shapes; `error` is relative to the CPU's eager output."""

    shapes: Shapes
    graphs: int
    seconds: float
    error: float
    at: float  # by the compiler's clock


@dataclass(frozen=True, slots=True)
class CompilerStats:
    """Since the compiler was made; `history` holds what is not older than the settings say."""

    cache: CacheStats
    compilations: int
    seconds: float
    history: tuple[Compilation, ...]


class CompiledModel(nn.Module):
    """A model whose operations go to XLA after every forward pass; a Module like any other.

    In training mode nothing is sent: the optimizer's step ends the graph. In evaluation mode there
    are no gradients. `strict`: a call with
    shapes that were compiled before must not compile again. `compilation` is the first one's.
    """

    def __init__(self, model: nn.Module, xla: XLA, *, strict: bool = False) -> None:
        super().__init__()
        self.model, self.xla, self.strict = model, xla, strict
        self.known: set[Shapes] = set()
        self.compilation: Compilation | None = None
        self.train(model.training)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The model's output, on its way.

        Raises:
            Recompilation: `strict`, and XLA compiled for shapes that it knew.
        """
        if self.training:
            return self.model(*inputs)
        with torch.no_grad():  # what is kept for a backward pass would make it another graph
            output = self.model(*inputs)
        before, shapes = self.xla.compilations().count, shapes_of(inputs)
        self.xla.sync()
        if self.strict and shapes in self.known and self.xla.compilations().count > before:
            raise Recompilation(
                f"{type(self.model).__name__} was compiled again for {shapes}: its graph depends "
                "on something other than shapes; keep Python values that change out of forward"
            )
        self.known.add(shapes)
        return output


class TrainingStep:
    """forward, loss, backward, optimizer, one graph: `step(inputs, target)` gives the loss."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        xla: XLA,
    ) -> None:
        self.model, self.optimizer, self.loss, self.xla = model.train(), optimizer, loss, xla

    def __call__(self, inputs: Tensor, target: Tensor) -> Tensor:
        """The loss before the step, detached and still on the device."""
        self.optimizer.zero_grad()
        value = self.loss(self.model(inputs), target)
        value.backward()
        self.xla.optimizer_step(self.optimizer)
        self.xla.sync()
        return value.detach()


class XLACompiler:
    """Compiles models ahead of use and keeps the `cache_size` that were used last.

    XLA's compiler cannot be interrupted, so `compile_timeout_s` is checked when it returns.
    """

    def __init__(
        self,
        config: TPUConfig,
        xla: XLA,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if config.compilation_mode is not TPUCompilationMode.TORCH_XLA:
            raise ConfigurationError(
                f"compilation_mode {config.compilation_mode.value!r} is not torch's: pjit is "
                "JAX's, xla a compiler's input; torch_xla is what computes a torch model"
            )
        self.config, self.xla, self.clock = config, xla, clock
        self._cache: LRUCache[CompiledModel] = LRUCache(config.cache_size)
        self._history: list[Compilation] = []
        self._count, self._seconds = 0, 0.0

    def compile_model(self, model: nn.Module, sample_inputs: Sequence[Tensor]) -> CompiledModel:
        """The model in eval mode, on the device, compiled for these shapes and found right.

        Raises:
            CompilationError: no sample inputs; XLA refused; or its output is not the CPU's.
            CompilationTimeout: it took longer than `compile_timeout_s`.
        """
        if not sample_inputs:
            raise CompilationError("XLA compiles for shapes: give sample_inputs")
        shapes = shapes_of(sample_inputs)
        held = self._cache.get((id(model), shapes))
        if held is not None:
            return held.eval()
        compiled = CompiledModel(model.eval(), self.xla, strict=self.config.strict_validation)
        compiled.compilation = self._first_run(compiled, sample_inputs, shapes)
        self._remember(compiled.compilation)
        self._cache.put((id(model), shapes), compiled)  # holds the model: its id stays its own
        return compiled

    @torch.no_grad()
    def _first_run(
        self, compiled: CompiledModel, inputs: Sequence[Tensor], shapes: Shapes
    ) -> Compilation:
        expected = copy.deepcopy(compiled.model).to("cpu")(*(x.cpu() for x in inputs))
        device = self.xla.device()
        compiled.to(device)
        given = [x.to(device) for x in inputs]
        self.xla.sync(wait=True)  # what was pending is not ours
        before, start = self.xla.compilations().count, self.clock()
        try:
            output = compiled(*given)
            self.xla.sync(wait=True)
        except RuntimeError as error:
            raise CompilationError(f"XLA refused the graph for {shapes}: {error}") from error
        seconds = self.clock() - start
        graphs = self.xla.compilations().count - before
        error = relative_error(output, expected)
        self._judge(seconds, error, output.dtype)
        return Compilation(shapes, graphs, seconds, error, start + seconds)

    def _judge(self, seconds: float, error: float, dtype: torch.dtype) -> None:
        limit_s, limit = self.config.compile_timeout_s, TOLERANCE.get(dtype, 2e-2)
        if seconds > limit_s:
            raise CompilationTimeout(f"compiled in {seconds:.1f} s, over {limit_s:g} s")
        if not error <= limit:  # NaN is not
            raise CompilationError(
                f"the compiled model is off by {error:.1e} of the CPU's output, over {limit:.0e}"
            )

    def _remember(self, one: Compilation) -> None:
        self._count += 1
        self._seconds += one.seconds
        oldest = one.at - self.config.history_retention_s
        self._history = [old for old in self._history if old.at >= oldest] + [one]

    def optimize_for_inference(
        self, model: nn.Module, sample_inputs: Sequence[Tensor]
    ) -> CompiledModel:
        """`compile_model`, gradients off for all parameters.

        Raises:
            CompilationError: as `compile_model`.
        """
        return self.compile_model(model.requires_grad_(False), sample_inputs)

    def optimize_for_training(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> TrainingStep:
        """One step as one graph, compiled on its first call. The model must be on the device."""
        return TrainingStep(model, optimizer, loss, self.xla)

    def benchmark(
        self, compiled: CompiledModel, inputs: Sequence[Tensor], *, iterations: int = 20
    ) -> Spread:
        """Seconds per forward pass, each waited for; the model is compiled already."""
        samples = []
        with torch.no_grad():
            for _ in range(iterations):
                start = time.perf_counter()
                compiled(*inputs)
                self.xla.wait()
                samples.append(time.perf_counter() - start)
        return Spread.of(samples)

    def clear_cache(self) -> None:
        """Forget all compiled models; what was counted stays."""
        self._cache.clear()

    @property
    def stats(self) -> CompilerStats:
        """So far."""
        return CompilerStats(self._cache.stats, self._count, self._seconds, tuple(self._history))

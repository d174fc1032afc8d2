"""Wrap `torch_xla` 2.9, and compile models by XLA."""

from __future__ import annotations

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
from torchbridge.lru import CompileCache, CompilerStats
from torchbridge.memory import Stats
from torchbridge.numbers import relative_error
from torchbridge.timing import Spread

INSTALL = "pip install 'torch~=2.9.0' 'torch_xla[tpu]~=2.9.0' (both of the same minor version)"
TOLERANCE = {torch.float32: 2e-2, torch.bfloat16: 5e-2}  # a TPU multiplies float32 as bfloat16


def load() -> XLA:
    """Import the installed torch_xla.

    Raises:
        NotAvailable: it is missing, or was built for another torch.
    """
    try:
        for part in ("core.xla_model", "debug.metrics", "runtime", "backends"):
            importlib.import_module(f"torch_xla.{part}")
    except (ImportError, OSError) as error:
        raise NotAvailable(f"torch_xla cannot be imported ({error}); {INSTALL}") from error
    return XLA(importlib.import_module("torch_xla"))


@dataclass(frozen=True, slots=True)
class Compilations:
    """Number of graphs that XLA compiled in this process, and their total seconds."""

    count: int
    seconds: float


class XLA:
    """Wrapper of `torch_xla`; tests pass a substitute module."""

    def __init__(self, module: ModuleType | Any) -> None:
        self.module = module
        self.model = module.core.xla_model
        self.version = str(module.__version__)

    def device(self) -> torch.device:
        """Return the default device of this process."""
        return self.module.device()

    def devices(self) -> list[torch.device]:
        """Return all devices of this process."""
        return list(self.module.devices())

    def sync(self, *, wait: bool = False) -> None:
        """Send all pending operations to XLA; with `wait`, until the devices are idle."""
        self.module.sync(wait=wait)
        if wait:
            self.model.wait_device_ops()

    @property
    def world_size(self) -> int:
        """Number of processes (devices) in the job."""
        return self.module.runtime.world_size()

    @property
    def ordinal(self) -> int:
        """Global index of this process."""
        return self.module.runtime.global_ordinal()

    @property
    def device_type(self) -> str:
        """Type of the device: `TPU`, or `CPU` under PJRT_DEVICE=CPU."""
        return self.module.runtime.device_type()

    @property
    def is_tpu(self) -> bool:
        """Whether the device is a TPU."""
        return self.device_type == "TPU"

    @property
    def accelerator(self) -> str:
        """The slice's accelerator type, else PJRT's device kind."""
        data = os.environ.get("TPU_ACCELERATOR_TYPE", "")
        return data or self.model.xla_device_kind(str(self.device()))

    def memory(self, device: torch.device) -> Stats:
        """Return the memory usage of one device in bytes.

        Raises:
            AllocationError: the runtime does not report memory usage, e.g. PJRT's CPU.
        """
        try:
            data = self.model.get_memory_info(device)
        except RuntimeError as error:
            raise AllocationError(f"{device} does not tell its memory: {error}") from error
        used, limit = int(data["bytes_used"]), int(data["bytes_limit"])
        peak = int(data.get("peak_bytes_used", used))
        return Stats(limit, limit - used, used, used, peak)

    def compilations(self) -> Compilations:
        """Return the compilations of this process."""
        data = self.module.debug.metrics.metric_data("CompileTime")
        return Compilations(int(data[0]), data[1] / 1e9) if data else Compilations(0, 0.0)

    @property
    def matmul_precision(self) -> str:
        """Precision of float32 products: default, high or highest."""
        return self.module.backends.get_mat_mul_precision()

    def set_matmul_precision(self, precision: str) -> None:
        """Set the precision of float32 products for graphs compiled from now on."""
        self.module.backends.set_mat_mul_precision(precision)


Shapes = tuple[tuple[tuple[int, ...], torch.dtype], ...]


def shapes_of(inputs: Sequence[Tensor]) -> Shapes:
    """Return shape and dtype of each input; a graph is compiled for these."""
    return tuple((tuple(x.shape), x.dtype) for x in inputs)


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a model; `error` is relative to the CPU's eager output."""

    shapes: Shapes
    graphs: int
    seconds: float
    error: float


class CompiledModel(nn.Module):
    """A model whose operations are sent to XLA after every forward pass in evaluation mode.

    In training mode the optimizer's step ends the graph instead. Evaluation mode records no
    gradients. With `strict`, a call with known shapes must not compile again. `compilation`
    describes the first compilation.
    """

    def __init__(self, model: nn.Module, xla: XLA, *, strict: bool = False) -> None:
        super().__init__()
        self.model, self.xla, self.strict = model, xla, strict
        self.known: set[Shapes] = set()
        self.compilation: Compilation | None = None
        self.train(model.training)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the model's output, which XLA may still be computing.

        Raises:
            Recompilation: `strict` is set, and XLA compiled for known shapes.
        """
        if self.training:
            return self.model(*inputs)
        with torch.no_grad():  # tensors saved for backward would change the graph
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


class XLACompiler:
    """Compile models ahead of use and cache the `cache_size` most recently used.

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
        self._cache: CompileCache[CompiledModel] = CompileCache(config.cache_size)

    def compile_model(self, model: nn.Module, sample_inputs: Sequence[Tensor]) -> CompiledModel:
        """Compile the model for evaluation with these shapes, and compare it with the CPU.

        Raises:
            CompilationError: there are no sample inputs, XLA refused, or the output is wrong.
            CompilationTimeout: it took longer than `compile_timeout_s`.
        """
        if not sample_inputs:
            raise CompilationError("XLA compiles for shapes: give sample_inputs")
        key = id(model), shapes_of(sample_inputs)  # cached: the model, so its id is unique
        return self._cache.once(key, lambda: self._compiled(model, sample_inputs)).eval()

    def _compiled(self, model: nn.Module, inputs: Sequence[Tensor]) -> tuple[CompiledModel, float]:
        compiled = CompiledModel(model.eval(), self.xla, strict=self.config.strict_validation)
        compiled.compilation = self._first_run(compiled, inputs)
        return compiled, compiled.compilation.seconds

    @torch.no_grad()
    def _first_run(self, compiled: CompiledModel, inputs: Sequence[Tensor]) -> Compilation:
        expected = copy.deepcopy(compiled.model).to("cpu")(*(x.cpu() for x in inputs))
        device, shapes = self.xla.device(), shapes_of(inputs)
        compiled.to(device)
        given = [x.to(device) for x in inputs]
        self.xla.sync(wait=True)  # earlier pending operations do not count
        before, start = self.xla.compilations().count, self.clock()
        try:
            output = compiled(*given)
            self.xla.sync(wait=True)
        except RuntimeError as error:
            raise CompilationError(f"XLA refused the graph for {shapes}: {error}") from error
        seconds, most_s = self.clock() - start, self.config.compile_timeout_s
        graphs = self.xla.compilations().count - before
        error, limit = relative_error(output, expected), TOLERANCE.get(output.dtype, 2e-2)
        if seconds > most_s:
            raise CompilationTimeout(f"compiled in {seconds:.1f} s, over {most_s:g} s")
        if error > limit:
            raise CompilationError(
                f"the compiled model is off by {error:.1e} of the CPU's output, over {limit:.0e}"
            )
        return Compilation(shapes, graphs, seconds, error)

    def optimize_for_inference(
        self, model: nn.Module, sample_inputs: Sequence[Tensor]
    ) -> CompiledModel:
        """Disable gradients of all parameters and call `compile_model`."""
        return self.compile_model(model.requires_grad_(False), sample_inputs)

    def optimize_for_training(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return `step(inputs, target)`: forward, loss, backward and optimizer as one graph.

        It is compiled on its first call and returns the loss before the update, on the device.
        """
        model.train()

        def step(inputs: Tensor, target: Tensor) -> Tensor:
            optimizer.zero_grad()
            value = loss(model(inputs), target)
            value.backward()
            self.xla.model.optimizer_step(optimizer)  # over all processes' gradients
            self.xla.sync()
            return value.detach()

        return step

    def benchmark(
        self, compiled: CompiledModel, inputs: Sequence[Tensor], *, iterations: int = 20
    ) -> Spread:
        """Return median and quartiles of the seconds per synchronised forward pass."""
        samples = []
        with torch.no_grad():
            for _ in range(iterations):
                start = time.perf_counter()
                compiled(*inputs)
                self.xla.sync(wait=True)
                samples.append(time.perf_counter() - start)
        return Spread.from_samples(samples)

    def clear_cache(self) -> None:
        """Remove all compiled models; the counts stay."""
        self._cache.clear()

    @property
    def stats(self) -> CompilerStats:
        """Compilation and cache counts since construction."""
        return self._cache.compiler_stats

"""Compiled models: run once for their shapes, compared with eager ones, counted, remembered."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchbridge.backends.lru import CacheStats, LRUCache
from torchbridge.backends.tpu.exceptions import (
    TPUConfigurationError,
    XLACompilationError,
    XLACompilationTimeout,
    XLARecompilation,
)
from torchbridge.backends.tpu.xla import XLA
from torchbridge.config import TPUCompilationMode, TPUConfig
from torchbridge.timing import Spread

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
            XLARecompilation: `strict`, and XLA compiled for shapes that it knew.
        """
        if self.training:
            return self.model(*inputs)
        with torch.no_grad():  # what is kept for a backward pass would make it another graph
            output = self.model(*inputs)
        before, shapes = self.xla.compilations().count, shapes_of(inputs)
        self.xla.sync()
        if self.strict and shapes in self.known and self.xla.compilations().count > before:
            raise XLARecompilation(
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
            raise TPUConfigurationError(
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
            XLACompilationError: no sample inputs; XLA refused; or its output is not the CPU's.
            XLACompilationTimeout: it took longer than `compile_timeout_s`.
        """
        if not sample_inputs:
            raise XLACompilationError("XLA compiles for shapes: give sample_inputs")
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
            raise XLACompilationError(f"XLA refused the graph for {shapes}: {error}") from error
        seconds = self.clock() - start
        graphs = self.xla.compilations().count - before
        error = _relative_error(output.cpu(), expected)
        self._judge(seconds, error, output.dtype)
        return Compilation(shapes, graphs, seconds, error, start + seconds)

    def _judge(self, seconds: float, error: float, dtype: torch.dtype) -> None:
        limit_s, limit = self.config.compile_timeout_s, TOLERANCE.get(dtype, 2e-2)
        if seconds > limit_s:
            raise XLACompilationTimeout(f"compiled in {seconds:.1f} s, over {limit_s:g} s")
        if not error <= limit:  # NaN is not
            raise XLACompilationError(
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
            XLACompilationError: as `compile_model`.
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


def _relative_error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.double(), expected.double()
    scale = expected.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return ((actual - expected).abs().max() / scale).item()

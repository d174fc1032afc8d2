"""AMD GPUs by ROCm, which torch addresses as CUDA devices; without a GPU the CPU is used."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.backends.backend import Backend, Optimizer
from torchbridge.backends.errors import CompilationError, KernelError
from torchbridge.backends.memory import AMDMemoryManager  # noqa: F401  offered here
from torchbridge.config import AMDConfig
from torchbridge.hardware import Hardware, probe
from torchbridge.lru import CompileCache, CompilerStats
from torchbridge.numbers import relative_error
from torchbridge.passes import TOLERANCE

_TILE = 16  # rows and columns of a matrix core's smallest product (v_mfma_*_16x16x*)


def matrix_core_fill(model: nn.Module) -> dict[str, float]:
    """Return, per linear layer, the share of its matrix-core tiles that is not padding."""
    return {
        name: module.weight.numel() / math.prod(_TILE * -(-n // _TILE) for n in module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }


class AMDBackend(Backend):
    """Backend of AMD GPUs (CDNA and RDNA)."""

    name = "amd"
    vendor = "amd"


class AMDOptimizer(Optimizer):
    """Optimizer of AMD GPUs."""

    backend_class = AMDBackend


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A compiled kernel.

    `code` is HIP's ELF code object, or the source of the captured graphs of a torch function.
    `call` runs it; None for a code object, which its user loads and launches.
    """

    name: str
    path_taken: str  # torch.compile's backend, or hipcc
    target: str
    code: bytes
    seconds: float
    call: Callable[..., Any] | None = None


class ROCmCompiler:
    """Compile kernels for `hardware` and cache the `kernel_cache_size` most recently used.

    A torch function is compiled by torch.compile's `backend` for its inputs' device, HIP source by
    hipcc, which needs no GPU.
    """

    def __init__(self, config: AMDConfig, hardware: Hardware, *, backend: str = "inductor") -> None:
        self.config, self.hardware, self.backend = config, hardware, backend
        self._cache: CompileCache[CompiledKernel] = CompileCache(config.kernel_cache_size)

    def compile_kernel(
        self, kernel: Callable[..., Tensor] | str, inputs: Sequence[Tensor] = (), *, name: str = ""
    ) -> CompiledKernel:
        """Compile a torch function of tensors and call it once with `inputs`, or compile HIP
        source.

        Raises:
            CompilationError: it does not compile, a function has no inputs, or hipcc is missing.
            KernelError: the compiled function's output differs from the function's.
        """
        if not isinstance(kernel, str) and not inputs:
            raise CompilationError("torch.compile compiles for shapes: give inputs")
        shapes = tuple((tuple(x.shape), x.dtype, x.device) for x in inputs)

        def make() -> tuple[CompiledKernel, float]:
            if isinstance(kernel, str):
                made = self._compile_source(kernel, name or "kernel")
            else:
                made = self._compile_function(kernel, inputs, name)
            return made, made.seconds

        return self._cache.once((self.hardware.target, kernel, shapes), make)

    def _compile_function(
        self, kernel: Callable[..., Tensor], inputs: Sequence[Tensor], name: str
    ) -> CompiledKernel:
        from torch._dynamo import lookup_backend

        graphs: list[str] = []
        inner = lookup_backend(self.backend)

        def capture(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
            graphs.append(graph.code)
            return inner(graph, examples)

        def run(*given: Tensor) -> Tensor:  # torch's own functions are not compiled by themselves
            return kernel(*given)

        run.__code__ = run.__code__.replace()  # torch limits recompilations of one code
        call, start = torch.compile(run, backend=capture, dynamic=False), time.perf_counter()
        try:
            actual = call(*inputs)
        except Exception as error:  # no C++ compiler, an operator that cannot be lowered ...
            raise CompilationError(f"{self.backend} cannot: {error}") from error
        seconds, name = time.perf_counter() - start, name or kernel.__name__
        if not graphs:
            raise CompilationError(f"{name} has no operation on tensors to compile")
        _compare(name, actual, kernel(*inputs))
        on_rocm = inputs[0].is_cuda and torch.version.hip
        target = self.hardware.target if on_rocm else str(inputs[0].device)
        code = "\n".join(graphs).encode()
        return CompiledKernel(name, self.backend, target, code, seconds, call)

    def _compile_source(self, source: str, name: str) -> CompiledKernel:
        hipcc = shutil.which("hipcc")
        if hipcc is None:
            raise CompilationError(f"hipcc is not on the PATH: {name} is not compiled")
        with tempfile.TemporaryDirectory() as folder:
            path, made = Path(folder, "kernel.hip"), Path(folder, "kernel.hsaco")
            path.write_text(source, "utf-8")
            arch, start = f"--offload-arch={self.hardware.target}", time.perf_counter()
            command = [hipcc, "--genco", arch, "-O3", "-o", str(made), str(path)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                raise CompilationError(f"hipcc refuses {name}: {done.stderr.strip()}")
            seconds = time.perf_counter() - start
            return CompiledKernel(name, "hipcc", self.hardware.target, made.read_bytes(), seconds)

    def clear_cache(self) -> None:
        """Remove all kernels; the counts stay."""
        self._cache.clear()

    @property
    def stats(self) -> CompilerStats:
        """Compilation and cache counts since construction."""
        return self._cache.compiler_stats


def _compare(name: str, actual: Tensor, expected: Tensor) -> None:
    error, limit = relative_error(actual, expected), TOLERANCE.get(expected.dtype, 0.0)
    if error > limit:
        raise KernelError(f"{name} is off by {error:.1e} (relative), over {limit:.0e}")


class HostStream:
    """Synchronous stand-in for `torch.cuda.Stream` on the CPU."""

    def synchronize(self) -> None:
        """Return at once: work on the CPU is complete when its call returns."""

    def __enter__(self) -> HostStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class HostEvent:
    """Stand-in for `torch.cuda.Event` that stores times of the host's clock."""

    def __init__(self) -> None:
        self._at: float | None = None

    def record(self) -> None:
        """Store the host's current time as the time of this event."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Return at once: a recorded event is complete."""

    def elapsed_time(self, later: HostEvent) -> float:
        """Return the milliseconds from this event to `later`.

        Raises:
            RuntimeError: one of the two was not recorded.
        """
        if self._at is None or later._at is None:
            raise RuntimeError("both events must be recorded before time is taken between them")
        return 1e3 * (later._at - self._at)


class HIPUtilities:
    """Create streams and events of one device and time profiling regions.

    `clock` is "device" if its events measure time, "cpu" if the host's clock does.
    """

    def __init__(self, device: torch.device, *, profiling: bool = False) -> None:
        self.device, self.profiling = device, profiling
        self.clock = "device" if device.type == "cuda" else "cpu"
        self.streams: list[Any] = []
        self._regions: dict[str, list[float]] = {}

    def create_stream(self) -> Any:
        """Create a `torch.cuda.Stream` or `HostStream` that is kept until `cleanup`."""
        stream = torch.cuda.Stream(self.device) if self.clock == "device" else HostStream()
        self.streams.append(stream)
        return stream

    def create_event(self) -> Any:
        """Create a `torch.cuda.Event` with timing, or a `HostEvent`."""
        return torch.cuda.Event(enable_timing=True) if self.clock == "device" else HostEvent()

    @contextlib.contextmanager
    def profile_region(self, name: str) -> Iterator[None]:
        """Time the block until the device has finished it; do nothing unless `profiling` is set."""
        if not self.profiling:
            yield
            return
        start, end = self.create_event(), self.create_event()
        start.record()
        try:
            yield
        finally:
            end.record()
            end.synchronize()
            self._regions.setdefault(name, []).append(start.elapsed_time(end))

    def profiling_summary(self) -> dict[str, list[float]]:
        """Return each region's times in milliseconds by name, in the order of first use."""
        return {name: list(samples) for name, samples in self._regions.items()}

    def clear_profiling_data(self) -> None:
        """Remove the times of all regions."""
        self._regions.clear()

    def device_properties(self) -> dict[str, Any]:
        """Return vendor, name, target, memory_bytes, units and clock of the device."""
        found, names = probe(self.device), ("vendor", "name", "target", "memory_bytes", "units")
        return {name: getattr(found, name) for name in names} | {"clock": self.clock}

    def cleanup(self) -> None:
        """Synchronise and drop all streams, and remove the times of all regions."""
        for stream in self.streams:
            stream.synchronize()
        self.streams.clear()
        self.clear_profiling_data()

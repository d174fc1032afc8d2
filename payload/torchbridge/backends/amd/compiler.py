"""Kernels for AMD's chips: compiled for real, compared, counted, remembered."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchbridge.backends.amd.exceptions import HIPCompilationError, HIPKernelError
from torchbridge.backends.lru import CacheStats, LRUCache
from torchbridge.config import AMDConfig
from torchbridge.hardware import Hardware

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel and how it was made.

    `code` is what came of it: an ELF code object of HIP and Triton, the captured graph of a torch
    function. `call` computes; None for a code object, which its user loads and launches.
    """

    name: str
    path_taken: str  # torch.compile's backend, hipcc or triton
    target: str
    code: bytes
    seconds: float
    call: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class CompilerStats:
    """Since the compiler was made; a kernel from the cache is not compiled again."""

    cache: CacheStats
    compiled: int
    seconds: float


class ROCmCompiler:
    """Compiles for `hardware`'s target and keeps the `kernel_cache_size` kernels used last.

    A torch function is compiled by torch.compile's `backend` for the device of its inputs, HIP
    source by hipcc, a Triton kernel by Triton; the last two need no device. What is missing is
    named, never replaced.
    """

    def __init__(self, config: AMDConfig, hardware: Hardware, *, backend: str = "inductor") -> None:
        self.config, self.hardware, self.backend = config, hardware, backend
        self._cache: LRUCache[CompiledKernel] = LRUCache(config.kernel_cache_size)
        self._compiled, self._seconds = 0, 0.0

    def compile_kernel(
        self, kernel: Callable[..., Tensor] | str, inputs: Sequence[Tensor] = (), *, name: str = ""
    ) -> CompiledKernel:
        """A torch function of tensors, called once with `inputs`, or HIP source.

        Raises:
            HIPCompilationError: it does not compile; no inputs for a function; no hipcc.
            HIPKernelError: the compiled function's output is not the function's.
        """
        if isinstance(kernel, str):
            key = ("hip", kernel)
            return self._once(key, lambda: self._compile_source(kernel, name or "kernel"))
        if not inputs:
            raise HIPCompilationError("torch.compile compiles for shapes: give inputs")
        shapes = tuple((tuple(x.shape), x.dtype, x.device) for x in inputs)
        return self._once((kernel, shapes), lambda: self._compile_function(kernel, inputs, name))

    def compile_triton(
        self, kernel: Any, signature: Mapping[str, str], constants: Mapping[str, Any]
    ) -> CompiledKernel:
        """A `triton.jit` function: `signature` names its arguments' types ("*fp32", "i32").

        Raises:
            HIPCompilationError: no Triton, or it refuses.
        """
        key = ("triton", kernel, tuple(signature.items()), tuple(constants.items()))
        return self._once(key, lambda: self._compile_triton(kernel, signature, constants))

    def _once(self, key: Hashable, make: Callable[[], CompiledKernel]) -> CompiledKernel:
        key = (self.hardware.target, key)
        held = self._cache.get(key)
        if held is not None:
            return held
        made = make()
        self._compiled += 1
        self._seconds += made.seconds
        self._cache.put(key, made)
        return made

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

        run.__code__ = run.__code__.replace()  # torch gives up on code that it met too often
        call, start = torch.compile(run, backend=capture, dynamic=False), time.perf_counter()
        try:
            actual = call(*inputs)
        except Exception as error:  # no C++ compiler, an operator that cannot be lowered ...
            raise HIPCompilationError(f"{self.backend} cannot: {error}") from error
        seconds, name = time.perf_counter() - start, name or kernel.__name__
        if not graphs:
            raise HIPCompilationError(f"{name} has no operation on tensors to compile")
        _compare(name, actual, kernel(*inputs))
        on_rocm = inputs[0].is_cuda and torch.version.hip
        target = self.hardware.target if on_rocm else str(inputs[0].device)
        code = "\n".join(graphs).encode()
        return CompiledKernel(name, self.backend, target, code, seconds, call)

    def _compile_source(self, source: str, name: str) -> CompiledKernel:
        hipcc = shutil.which("hipcc")
        if hipcc is None:
            raise HIPCompilationError(f"hipcc is not on the PATH: {name} is not compiled")
        with tempfile.TemporaryDirectory() as folder:
            path, made = Path(folder, "kernel.hip"), Path(folder, "kernel.hsaco")
            path.write_text(source, "utf-8")
            arch, start = f"--offload-arch={self.hardware.target}", time.perf_counter()
            command = [hipcc, "--genco", arch, "-O3", "-o", str(made), str(path)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                raise HIPCompilationError(f"hipcc refuses {name}: {done.stderr.strip()}")
            seconds = time.perf_counter() - start
            return CompiledKernel(name, "hipcc", self.hardware.target, made.read_bytes(), seconds)

    def _compile_triton(
        self, kernel: Any, signature: Mapping[str, str], constants: Mapping[str, Any]
    ) -> CompiledKernel:
        try:
            import triton
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource
        except ImportError as error:
            raise HIPCompilationError(f"Triton cannot be imported: {error}") from error
        target = self.hardware.target
        wave = 64 if target.startswith("gfx9") else 32  # threads in step: CDNA, RDNA
        source, start = ASTSource(kernel, dict(signature), dict(constants)), time.perf_counter()
        try:
            made = triton.compile(source, target=GPUTarget("hip", target, wave))
        except Exception as error:  # Triton's own kinds differ between its versions
            raise HIPCompilationError(f"Triton refuses {kernel.__name__}: {error}") from error
        seconds = time.perf_counter() - start
        return CompiledKernel(kernel.__name__, "triton", target, made.asm["hsaco"], seconds)

    def clear_cache(self) -> None:
        """Forget all kernels; what was counted stays."""
        self._cache.clear()

    @property
    def stats(self) -> CompilerStats:
        """So far."""
        return CompilerStats(self._cache.stats, self._compiled, self._seconds)


def _compare(name: str, actual: Tensor, expected: Tensor) -> None:
    scale = expected.double().abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    error = ((actual.double() - expected.double()).abs().max() / scale).item()
    limit = TOLERANCE.get(expected.dtype, 0.0)
    if not error <= limit:  # NaN is not
        raise HIPKernelError(f"{name} is off by {error:.1e} (relative), over {limit:.0e}")

"""Numbers of the AMD backend: outputs against float64, precision by chip, kernels, clocks."""

from __future__ import annotations

import shutil
import time

import pytest
import torch
from torch import nn

from suites.numerics import assert_close, needs_vendor
from torchbridge import memory
from torchbridge.backends import errors as exceptions
from torchbridge.backends.amd import (
    AMDMemoryManager,
    HostEvent,
    ROCmCompiler,
    matrix_core_fill,
)
from torchbridge.config import AMDConfig
from torchbridge.hardware import Hardware

BF16 = torch.bfloat16
ELF = b"\x7fELF"
VECTOR_ADD = """
#include <hip/hip_runtime.h>
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""
needs_rocm = needs_vendor("amd", "a ROCm device")
needs_hipcc = pytest.mark.skipif(shutil.which("hipcc") is None, reason="hipcc not installed")


def quick(**settings) -> ROCmCompiler:
    """Return a compiler without code generation."""
    return ROCmCompiler(AMDConfig(**settings), Hardware.amd("gfx942"), backend="eager")


class TestChips:
    def test_tiles_that_weights_fill(self):
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(33, 16), nn.Linear(1, 1))
        fill = {"0": 1.0, "2": 33 / 48, "3": 1 / 256}
        assert matrix_core_fill(model) == pytest.approx(fill)


class TestKernels:
    def test_a_kernel_for_each_shape_and_dtype(self, device):
        compiler = quick()
        cases = ((1, torch.float64), (7, torch.float32), (64, torch.float32), (64, BF16))
        for size, dtype in cases:
            x = torch.randn(size, device=device, dtype=dtype)
            kernel = compiler.compile_kernel(torch.nn.functional.silu, (x,))
            assert_close(kernel.call(x), x.double() * x.double().sigmoid())
        assert (compiler.stats.compiled, compiler.stats.cache.size) == (4, 4)

    def test_a_function_that_is_never_the_same_is_refused(self, device):
        drawn = iter(range(10))

        def changing(x):
            return x + next(drawn)

        with pytest.raises(exceptions.HIPKernelError, match="changing is off by"):
            quick().compile_kernel(changing, (torch.ones(2, device=device),))

    def test_shapes_are_needed(self):
        with pytest.raises(exceptions.HIPCompilationError, match="give inputs"):
            quick().compile_kernel(torch.relu)

    def test_what_raises_is_refused(self, device):
        def broken(x):
            return x @ torch.ones(3, 3, device=x.device)

        compiler = quick()
        with pytest.raises(exceptions.HIPCompilationError, match="eager cannot"):
            compiler.compile_kernel(broken, (torch.ones(2, 2, device=device),))
        assert (compiler.stats.compiled, compiler.stats.cache.size) == (0, 0)

    def test_what_hipcc_is_asked_for(self, tmp_path, monkeypatch):
        script = tmp_path / "hipcc"  # a fake: $1 --genco, $2 target, $5 output, $6 source
        script.write_text('#!/bin/sh\n/bin/cat "$6" > "$5"; echo "$1 $2" >> "$5"\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        made = [
            ROCmCompiler(AMDConfig(), Hardware.amd(target)).compile_kernel("// source", name="add")
            for target in ("gfx90a", "gfx942:sramecc+:xnack-")
        ]
        lines = [b"// source--genco --offload-arch=" + t + b"\n" for t in (b"gfx90a", b"gfx942")]
        assert [kernel.code for kernel in made] == lines
        script.write_text("#!/bin/sh\necho no such thing >&2; exit 1\n")
        with pytest.raises(exceptions.HIPCompilationError, match="refuses bad: no such thing"):
            quick().compile_kernel("// source", name="bad")

    @needs_hipcc
    def test_hip_source_to_a_code_object(self):
        compiler = ROCmCompiler(AMDConfig(), Hardware.amd("gfx90a"))
        kernel = compiler.compile_kernel(VECTOR_ADD, name="add")
        assert (kernel.path_taken, kernel.target, kernel.code[:4]) == ("hipcc", "gfx90a", ELF)
        assert compiler.compile_kernel(VECTOR_ADD, name="add") is kernel
        with pytest.raises(exceptions.HIPCompilationError, match="hipcc refuses bad"):
            compiler.compile_kernel("this is no C", name="bad")


class TestMemory:
    def test_the_share_is_kept(self, device):
        total = memory.stats(device).total
        if memory.stats(device).free < total / 3:
            pytest.skip("less than a third of the memory is free")
        most = {f: AMDMemoryManager(AMDConfig(memory_fraction=f), device) for f in (1.0, 0.9)}
        kept = most[1.0].free_bytes() - most[0.9].free_bytes()
        assert kept == pytest.approx(total / 10, rel=0.2)


class TestClocks:
    def test_the_processors_clock(self):
        first, second = HostEvent(), HostEvent()
        with pytest.raises(RuntimeError, match="must be recorded"):
            first.elapsed_time(second)
        first.record()
        start = time.perf_counter()
        while time.perf_counter() - start < 0.02:
            pass
        second.record()
        assert first.elapsed_time(second) >= 20
        assert second.elapsed_time(first) == -first.elapsed_time(second)

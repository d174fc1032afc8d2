"""Check a machine's software and hardware by 14 diagnostics.

Run: `python -m torchbridge.doctor`. A warning concerns something optional; the exit code is 1 if a
diagnostic failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pkgutil
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import torchbridge
from torchbridge.device import describe, pick_device
from torchbridge.hardware import probe
from torchbridge.numbers import TOLERANCE, relative_error, whole_float32
from torchbridge.validation import machine
from torchbridge.validation.findings import (
    FAIL,
    PASS,
    WARNING,
    Finding,
    Report,
    examine,
    failed,
    passed,
    warned,
)

LEAST_PYTHON = (3, 10)
LEAST_TORCH = (2, 7)
LEAST_MEMORY = 4 * 2**30  # bytes of a GPU below which the demonstrations do not fit


@dataclass(frozen=True, slots=True)
class SystemUnderTest(machine.Machine):
    """The machine to diagnose, with the functions that the checks call; tests replace them."""

    python: tuple[int, ...] = sys.version_info[:3]
    torch_version: str = torch.__version__
    compile: Callable[..., Any] = torch.compile
    load: Callable[[str], ModuleType] = importlib.import_module
    find_program: Callable[[str], str | None] = shutil.which


def check_python(system: SystemUnderTest) -> Finding:
    """Check that the Python version is at least LEAST_PYTHON."""
    version = ".".join(map(str, system.python))
    if system.python < LEAST_PYTHON:
        least = ".".join(map(str, LEAST_PYTHON))
        return failed(f"Python {version} is older than {least}", f"install Python {least}")
    return passed(
        f"Python {version}", version=version, implementation=platform.python_implementation()
    )


def check_torch(system: SystemUnderTest) -> Finding:
    """Check that torch is at least LEAST_TORCH and computes a gradient."""
    version = system.torch_version
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        return failed(f"torch {version} is older than {least}", f"install torch {least} or later")
    x = torch.tensor(3.0, requires_grad=True)
    (slope,) = torch.autograd.grad(x**2, x)
    if slope.item() != 6.0:
        return failed(
            f"torch {version}: the slope of x^2 at 3 is {slope.item()}", "reinstall torch"
        )
    return passed(
        f"torch {version}", version=version, cuda=torch.version.cuda, hip=torch.version.hip
    )


def check_numpy(system: SystemUnderTest) -> Finding:
    """Check that torch and NumPy share memory."""
    try:
        numpy = system.load("numpy")
    except ImportError:
        return failed("NumPy is not installed", "install numpy")
    array = numpy.arange(6.0).reshape(2, 3)
    tensor = torch.from_numpy(array)
    tensor[1, 2] = -1.0
    if array[1, 2] != -1.0 or tensor.numpy().sum() != 9.0:
        return failed(f"NumPy {numpy.__version__} does not share memory with torch", "reinstall it")
    return passed(f"NumPy {numpy.__version__}", version=numpy.__version__)


def check_package(system: SystemUnderTest) -> Finding:
    """Import every module of this library."""
    found = pkgutil.walk_packages(torchbridge.__path__, "torchbridge.")
    names = [module.name for module in found]
    tried = {name: _import_error(name, system) for name in names}
    broken = {name: error for name, error in tried.items() if error}
    version = torchbridge.__version__
    if broken:
        message = f"torchbridge {version}: cannot import {', '.join(broken)}"
        return failed(message, "unpack the archive again", broken=broken)
    return passed(
        f"torchbridge {version}, {len(names)} modules", version=version, modules=len(names)
    )


def _import_error(name: str, system: SystemUnderTest) -> str:
    """Return why a module cannot be imported; empty if it can."""
    try:
        system.load(name)
    except Exception as error:  # whatever it is
        return f"{type(error).__name__}: {error}"
    return ""


def check_gpu(system: SystemUnderTest) -> Finding:
    """Check that a GPU is present and computes correctly; a CPU alone is a warning."""
    if system.device.type == "cpu":
        return warned("no GPU: everything runs on the CPU", "use a machine with one for speed")
    finding = machine.compute(system)
    return replace(finding, message=f"{system.hardware.name}, {finding.message}")


def check_capability(system: SystemUnderTest) -> Finding:
    """Check that torch supports the GPU, and list the formats it computes natively."""
    hardware = system.hardware
    if hardware.vendor == "cpu":
        return warned("no GPU: no compute capability", "none is needed on a CPU")
    if hardware.architecture == "unsupported":
        return failed(f"{hardware.target} is not supported", "use sm_60 or gfx908 and later")
    if hardware.vendor == "nvidia" and hardware.capability < (7, 0):
        return warned(f"{hardware.target} has no tensor cores", "use sm_70 or later")
    return machine.capabilities(system)


def check_memory(system: SystemUnderTest) -> Finding:
    """Check that the GPU has at least LEAST_MEMORY bytes and keeps the numbers written to them."""
    if system.hardware.vendor == "cpu":
        return warned("no GPU: no GPU memory", "none is needed on a CPU")
    size = system.hardware.memory_bytes
    if 0 < size < LEAST_MEMORY:
        least = LEAST_MEMORY / 2**30
        return warned(f"{size / 2**30:.1f} GiB", f"use {least:.0f} GiB or more", memory_bytes=size)
    return machine.memory(system)


def check_cores(system: SystemUnderTest, usable: int | None = None) -> Finding:
    """Check that torch uses no more threads than the cores that this process may run on."""
    usable = usable or _usable_cores()
    threads = torch.get_num_threads()
    details = {"usable": usable, "present": os.cpu_count(), "threads": threads}
    if threads > usable:
        advice = f"set OMP_NUM_THREADS={usable}"
        return warned(f"{threads} threads share {usable} cores", advice, **details)
    if usable < 2:
        return warned("1 core", "use 2 or more: loading and computing then overlap", **details)
    return passed(f"{usable} cores, {threads} threads", **details)


def _usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def check_compile(system: SystemUnderTest) -> Finding:
    """Check that torch.compile builds a kernel that computes the same as eager mode."""
    x = torch.linspace(-3, 3, 1000, device=system.device)
    try:
        with _known_deprecations():
            actual = system.compile(_wave)(x)
    except Exception as error:  # a missing compiler raises many types of errors
        message = f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        return warned(message, "install a C++ compiler (CPU) or Triton (GPU)")
    return _close("torch.compile", actual, _wave(x.cpu().double()))


def _wave(x: Tensor) -> Tensor:
    return (x.sin() * 2 + 1).relu()


@contextlib.contextmanager
def _known_deprecations() -> Iterator[None]:
    """Ignore deprecation warnings in the block: Inductor uses TorchScript, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def check_torchscript(system: SystemUnderTest) -> Finding:
    """Check that a traced TorchScript model computes the same as the original."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    x = torch.linspace(-1, 1, 24).reshape(3, 8)
    with torch.no_grad(), _known_deprecations():
        traced = torch.jit.trace(model, x)
        return _close("TorchScript", traced(2 * x), model.double()((2 * x).double()))


def check_optimization(system: SystemUnderTest) -> Finding:
    """Check that a backend's passes change a model and preserve its outputs."""
    backends = system.load("torchbridge.backends")
    backend = backends.create_backend(device=system.device)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)
    with torch.no_grad(), whole_float32():
        expected = model(x)
        prepared = backend.prepare_model(model, level="balanced")
        actual = prepared.model(backend.to_device(x))
    evidence = {one.name: one.evidence or one.reason for one in prepared.passes}
    if not prepared.applied:
        return failed(
            "no pass changed a convolution with batch norm", "see the reasons", **evidence
        )
    return _close(f"passes {', '.join(prepared.applied)}", actual, expected, **evidence)


def check_triton(system: SystemUnderTest) -> Finding:
    """Check that Triton is installed and has a driver for a device of this machine."""
    try:
        triton = system.load("triton")
    except ImportError:
        return warned("Triton is not installed", "it comes with torch for CUDA and ROCm")
    version = triton.__version__
    if system.device.type not in ("cuda", "xpu"):
        message = f"Triton {version}, without a device to run its kernels on"
        return warned(message, "use a machine with a GPU", version=version)
    target = triton.runtime.driver.active.get_current_target()
    actual = system.compile(_wave)(torch.linspace(-3, 3, 1000, device=system.device))
    expected = _wave(torch.linspace(-3, 3, 1000).double())
    return _close(f"Triton {version} for {target.backend} {target.arch}", actual, expected)


def check_flash(system: SystemUnderTest) -> Finding:
    """Check that SDPA's flash kernel runs on the device and applies the causal mask."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype = torch.float32 if system.device.type == "cpu" else torch.float16
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 64, 64, generator=generator).to(dtype)
    inputs = [x.to(system.device) for x in (q, k, v)]
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            actual = nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    except RuntimeError as error:
        message = f"no flash kernel for {system.hardware.target}: {str(error).splitlines()[0]}"
        return warned(message, "use sm_80 or later; SDPA takes another kernel by itself")
    q, k, v = (x.double() for x in (q, k, v))
    ahead = torch.ones(64, 64, dtype=torch.bool).triu(1)
    weights = (q @ k.mT / 8).masked_fill(ahead, -torch.inf).softmax(dim=-1)
    return _close(f"flash attention in {dtype}", actual, weights @ v)


def check_toolkit(system: SystemUnderTest) -> Finding:
    """Check for a CUDA compiler of torch's major version; only custom CUDA kernels need it."""
    program = system.find_program("nvcc")
    if program is None:
        return warned("no nvcc on PATH", "only needed to build CUDA extensions")
    done = subprocess.run(
        [program, "--version"], check=False, capture_output=True, text=True, timeout=30
    )
    found = re.search(r"release (\d+)\.(\d+)", done.stdout)
    if done.returncode or found is None:
        return failed(f"{program} --version fails: {done.stderr.strip()[:200]}", "reinstall it")
    version = ".".join(found.groups())
    details = {"version": version, "program": program, "torch": torch.version.cuda}
    if torch.version.cuda and torch.version.cuda.split(".")[0] != found.group(1):
        message = f"nvcc {version}, torch is built with CUDA {torch.version.cuda}"
        return warned(message, "install the toolkit that torch is built with", **details)
    return passed(f"nvcc {version}", **details)


def _close(what: str, actual: Tensor, expected: Tensor, **details: Any) -> Finding:
    """Return a passed finding if the numbers agree within the tolerance of their dtype."""
    error, limit = relative_error(actual, expected), TOLERANCE[actual.dtype]
    message = f"{what}: relative error {error:.1e} (<= {limit:.0e})"
    if error > limit:
        return failed(message, "update torch and the driver", error=error, **details)
    return passed(message, error=error, **details)


Diagnostic = Callable[[SystemUnderTest], Finding]
DIAGNOSTICS: dict[str, dict[str, Diagnostic]] = {
    "basic": {
        "Python Version": check_python,
        "PyTorch Version": check_torch,
        "NumPy Version": check_numpy,
        "TorchBridge Version": check_package,
    },
    "hardware": {
        "CUDA GPU": check_gpu,
        "GPU Compute Capability": check_capability,
        "GPU Memory": check_memory,
        "CPU Cores": check_cores,
    },
    "optimization": {
        "torch.compile": check_compile,
        "TorchScript": check_torchscript,
        "TorchBridge Optimization": check_optimization,
    },
    "advanced": {
        "Triton Kernels": check_triton,
        "Flash Attention": check_flash,
        "CUDA Toolkit": check_toolkit,
    },
}


SIGNS = {PASS: "+", WARNING: "!", FAIL: "x"}


def diagnose(
    categories: Sequence[str] = tuple(DIAGNOSTICS), system: SystemUnderTest | None = None
) -> list[Report]:
    """Run the diagnostics of some categories; return one report per category.

    Raises:
        ValueError: a category is unknown.
    """
    for category in categories:
        if category not in DIAGNOSTICS:
            raise ValueError(f"category must be one of {', '.join(DIAGNOSTICS)}, got {category!r}")
    if system is None:
        device = pick_device()
        system = SystemUnderTest(device, probe(device))
    return [examine(category, DIAGNOSTICS[category], system) for category in categories]


def show(reports: Sequence[Report]) -> None:
    """Print one line per diagnostic, recommendations and the counts."""
    for report in reports:
        print(f"\n{report.title.capitalize()}")
        for finding in report:
            print(f"  [{SIGNS[finding.status]}] {finding.name}: {finding.message}")
            if finding.recommendation:
                print(f"      -> {finding.recommendation}")
    counts = {s: sum(len(report.names(s)) for report in reports) for s in SIGNS}
    total = sum(counts.values())
    print(f"\n{counts[PASS]}/{total} passed, {counts[WARNING]} warnings, {counts[FAIL]} failed")


def main(arguments: list[str] | None = None) -> int:
    """Run the diagnostics and print them; return 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(description="What this machine has and lacks")
    parser.add_argument("--category", choices=DIAGNOSTICS, action="append")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    reports = diagnose(options.category or tuple(DIAGNOSTICS))
    if options.json:
        print(json.dumps([report.to_dict() for report in reports], indent=2))
    else:
        print(f"torchbridge {torchbridge.__version__} on {describe(pick_device())}")
        show(reports)
    return 0 if all(report.ok for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())

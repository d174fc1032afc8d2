"""Six demonstrations of the AMD backend. Run: `python -m demos.amd`; exits 1 if one fails.

Every demonstration also checks what it shows. Without a ROCm device the rules are those of an
MI300X (gfx942), the numbers the CPU's, and every part that computes says `degraded`.
"""

from __future__ import annotations

import shutil
import statistics
import sys

import torch
from torch import Tensor, nn

from demos.stage import Part, require, show_all
from suites.backend_models import in_float64, resnet
from torchbridge import evidence
from torchbridge.backends.amd import (
    AMDBackend,
    AMDMemoryManager,
    HIPUtilities,
    ROCmCompiler,
    matrix_core_fill,
)
from torchbridge.backends.errors import HIPCompilationError, ROCmOutOfMemoryError
from torchbridge.backends.optimise import LEVELS
from torchbridge.config import AMDConfig
from torchbridge.hardware import Hardware, probe
from torchbridge.numbers import relative_error, whole_float32

GIB = 2**30
CHIPS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
FEATURES = ("fp16", "bf16", "fp8", "fp4", "matrix_cores")
SOURCE = 'extern "C" __attribute__((global)) void empty() {}'


def rules(device: torch.device) -> Hardware:
    """Return the device's hardware if it is AMD's; else an MI300X's, reporting degraded."""
    found = probe(device)
    if found.vendor == "amd":
        return found
    reason = f"no ROCm device: an MI300X's rules, the numbers of {device}"
    evidence.degraded(reason)
    print(f"[DEGRADED] {reason}")
    return Hardware.amd("gfx942", name="MI300X")


def architectures(_: torch.device) -> None:
    """Show what each chip computes natively, and the settings resolved by it."""
    print(f"| {'chip':<8} | {'family':<6} | " + " | ".join(FEATURES) + " |")
    for target in CHIPS:
        chip = Hardware.amd(target)
        marks = " | ".join(f"{'yes' if chip.has(f) else '-':<{len(f)}}" for f in FEATURES)
        print(f"| {target:<8} | {chip.architecture:<6} | {marks} |")
        decided = AMDConfig().on(chip)
        require(decided.matrix_cores == target.startswith("gfx9"), "matrix cores on CDNA alone")


def backend(device: torch.device) -> None:
    """Show the device, and the settings that it resolves."""
    made = AMDBackend(hardware=rules(device), device=device)
    for name, value in made.get_device_info().items():
        print(f"  {name:<13} {value}")
    print(f"Settings: {made.settings}")
    fill = matrix_core_fill(nn.Sequential(nn.Linear(1024, 4096), nn.Linear(1000, 10)))
    for name, share in fill.items():
        print(f"  layer {name}: {share:.1%} of its matrix-core tiles hold weights")
    require(fill["0"] == 1.0 and fill["1"] < 1.0, "full tiles, and padded ones")


def levels(device: torch.device) -> None:
    """Show a network with norms at each level: passes, evidence, error against float64."""
    hardware = rules(device)
    made = AMDBackend(hardware=hardware, device=device)
    x = torch.randn(4, 3, 32, 32, device=device)
    for level, limit in zip(LEVELS, (1e-4, 1e-4, 5e-2), strict=True):
        model = resnet()
        expected = in_float64(model, x)
        prepared = made.prepare_model(model, level=level)
        with whole_float32():
            error = relative_error(prepared.model(x), expected)
        print(f"{level}: relative error {error:.1e}")
        for one in prepared.passes:
            print(
                f"  {one.name:<13} {'yes: ' + one.evidence if one.applied else 'no: ' + one.reason}"
            )
        require(error < limit, f"an error below {limit}")


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Compute gelu(x + bias), a function to compile."""
    return nn.functional.gelu(x + bias)


def kernels(device: torch.device) -> None:
    """Show compilation of a torch function, comparison and cache; of HIP source with hipcc."""
    compiler = ROCmCompiler(AMDConfig(), rules(device))
    inputs = torch.randn(256, 512, device=device), torch.randn(512, device=device)
    cold, warm = (compiler.compile_kernel(bias_gelu, inputs) for _ in range(2))
    print(f"{cold.name} by {cold.path_taken} for {cold.target} in {cold.seconds:.1f} s")
    print(f"The graph:{cold.code.decode().rstrip()}")
    print(f"Cache: {compiler.stats.cache}")
    require(warm is cold and compiler.stats.compiled == 1, "one compilation for two requests")
    expected = bias_gelu(*(x.double() for x in inputs))
    error = (cold.call(*inputs).double() - expected).abs().max().item()
    print(f"Largest error against float64: {error:.1e}")
    require(error < 1e-5, "an error below 1e-5")
    try:
        made = compiler.compile_kernel(SOURCE, name="empty")
        print(f"HIP source: {len(made.code):,} bytes for {made.target} by {made.path_taken}")
    except HIPCompilationError as error:
        print(f"HIP source: {error}")
        require(shutil.which("hipcc") is None, "hipcc to compile an empty kernel")


def memory(device: torch.device) -> None:
    """Show allocation within a share of the device, and one that does not fit."""
    rules(device)
    manager = AMDMemoryManager(AMDConfig(memory_fraction=0.5), device)
    print(f"Free within half of {device}: {manager.free_bytes() / GIB:.2f} GiB")
    held = [manager.allocate_tensor((1024, 1024), torch.float16) for _ in range(3)]
    try:
        manager.allocate_tensor((2**50,))
    except ROCmOutOfMemoryError as error:
        print(f"Refused: {error}")
    summary = manager.allocation_summary()
    print(summary)
    require((summary.tensors, summary.refused) == (len(held), 1), "three tensors and one refusal")
    require(summary.bytes == sum(t.nbytes for t in held), "the sum of the tensors' bytes")


def clocks(device: torch.device) -> None:
    """Show profiling regions: time 5 products and print the median in ms."""
    rules(device)
    utilities = HIPUtilities(device, profiling=True)
    print(f"Clock: {utilities.clock}")
    stream = utilities.create_stream()
    a = torch.randn(512, 512, device=device)
    for _ in range(5):
        with utilities.profile_region("product"):
            a @ a
    stream.synchronize()
    samples_ms = utilities.profiling_summary()["product"]
    print(f"  product: {len(samples_ms)} passes, median {statistics.median(samples_ms):.3f} ms")
    require(len(samples_ms) == 5 and min(samples_ms) > 0, "five passes, each taking time")
    utilities.cleanup()
    require(utilities.profiling_summary() == {}, "nothing left after the clean-up")


PARTS: tuple[Part, ...] = (
    ("Architectures", architectures),
    ("Backend and Settings", backend),
    ("Optimization Levels", levels),
    ("Kernel Compilation", kernels),
    ("Memory", memory),
    ("Streams, Events, Regions", clocks),
)

if __name__ == "__main__":
    sys.exit(show_all("AMD Backend Demonstrations", PARTS))

"""Peak compute and memory rates of a device, from its properties or the vendor's documents.

A peak is an upper bound: units x clock x operations per unit and cycle. Some consumer chips of a
capability are slower (half rate with fp32 accumulation), which no property reports.
"""

from __future__ import annotations

from torchbridge.hardware import TPU_CHIPS, Hardware

# Floating-point operations (a multiply-add is two) of one SM in one cycle, dense.
# fp32: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions (x 2);
# others: the architectures' white papers, peak / (SMs x clock), which gives these powers of two.
_NVIDIA = {
    (6, 0): {"fp32": 128, "fp16": 256},
    (6, 1): {"fp32": 256},
    (7, 0): {"fp32": 128, "fp16": 1024},
    (7, 5): {"fp32": 128, "fp16": 1024},
    (8, 0): {"fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048},
    (8, 6): {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024},
    (8, 7): {"fp32": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048},
    (8, 9): {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048},
    (9, 0): {"fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192},
    (10, 0): {"fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 32768},
    (12, 0): {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "fp4": 4096},
}
# Of one compute unit: https://www.amd.com/en/products/accelerators/instinct.html, as above.
_AMD = {
    "gfx908": {"fp32": 256, "fp16": 1024, "bf16": 512},
    "gfx90a": {"fp32": 256, "fp16": 1024, "bf16": 1024},
    "gfx942": {"fp32": 256, "fp16": 2048, "bf16": 2048, "fp8": 4096},
    "gfx950": {"fp32": 256, "fp16": 4096, "bf16": 4096, "fp8": 8192, "fp4": 16384},
}


def operations_per_cycle(hardware: Hardware, number: str) -> int | None:
    """Return operations per cycle of one unit for fp32, tf32, fp16, bf16, fp8 or fp4, or None."""
    if hardware.vendor == "nvidia" and hardware.capability is not None:
        known = [least for least in _NVIDIA if _of_its_family(hardware.capability, least)]
        return _NVIDIA[max(known)].get(number) if known else None
    return _AMD.get(hardware.target, {}).get(number)


def peak_flops(hardware: Hardware, number: str) -> float | None:
    """Return the dense peak in FLOP/s of the whole device; None if unknown."""
    if hardware.vendor == "google":
        chip = TPU_CHIPS.get(hardware.architecture)
        return chip.flops.get(number) if chip else None
    each = operations_per_cycle(hardware, number)
    if each is None or not hardware.units or not hardware.clock_hz:
        return None
    return each * hardware.units * hardware.clock_hz


def peak_bandwidth(hardware: Hardware) -> float | None:
    """Return the peak memory bandwidth in bytes/s; None if unknown."""
    return hardware.memory_bytes_per_s or None


def _of_its_family(capability: tuple[int, int], least: tuple[int, int]) -> bool:
    """Return whether the capability has the same major version and is at least `least`."""
    return capability[0] == least[0] and capability >= least

"""What a device can compute and move per second at most, from its properties or its maker's pages.

A peak is an upper bound: units x clock x operations per unit and cycle. Chips of one capability may
be cut down further (the consumer ones halve 16-bit products summed in 32 bit), which no property
tells; none is faster.
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
    """Of one unit, for products of `number`s: fp32, tf32, fp16, bf16, fp8, fp4. None: not known."""
    if hardware.vendor == "nvidia" and hardware.capability is not None:
        known = [least for least in _NVIDIA if _of_its_family(hardware.capability, least)]
        return _NVIDIA[max(known)].get(number) if known else None
    return _AMD.get(hardware.target, {}).get(number)


def peak_flops(hardware: Hardware, number: str) -> float | None:
    """Operations per second of the whole device, dense; None where its properties do not tell."""
    if hardware.vendor == "google":
        chip = TPU_CHIPS.get(hardware.architecture)
        return chip.flops.get(number) if chip else None
    each = operations_per_cycle(hardware, number)
    if each is None or not hardware.units or not hardware.clock_hz:
        return None
    return each * hardware.units * hardware.clock_hz


def peak_bandwidth(hardware: Hardware) -> float | None:
    """Bytes per second from and to the device's memory; None where its properties do not tell."""
    return hardware.memory_bytes_per_s or None


def _of_its_family(capability: tuple[int, int], least: tuple[int, int]) -> bool:
    """Of the same major version, and not older. A later minor one is never slower per unit."""
    return capability[0] == least[0] and capability >= least

"""How fast a device can be at most, and what that says about FP8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchbridge.hardware import Hardware
from torchbridge.peaks import peak_bandwidth, peak_flops

# Where the driver does not tell clocks: what NVIDIA's data sheets say without sparsity.
_DATA_SHEETS = {
    "sm_89": ("NVIDIA L4's data sheet", 121e12, 242e12, 300e9),
    "sm_90": ("NVIDIA H100 SXM's data sheet", 989e12, 1979e12, 3.35e12),
    "sm_100": ("NVIDIA B200's data sheet", 2250e12, 4500e12, 8e12),
}


@dataclass(frozen=True, slots=True)
class Peaks:
    """Operations and bytes per second at most, and who says so."""

    source: str
    bf16: float
    fp8: float
    bandwidth: float

    @classmethod
    def of(cls, hardware: Hardware) -> Peaks:
        """From the device's own units and clocks, else from a data sheet.

        Raises:
            ValueError: neither is known, or the hardware has no FP8.
        """
        target = hardware.target
        if not hardware.has("fp8"):
            raise ValueError(f"{target or hardware.vendor} has no FP8 units")
        told = [peak_flops(hardware, number) for number in ("bf16", "fp8")]
        told.append(peak_bandwidth(hardware))
        if None not in told:
            source = f"{hardware.units} units at {hardware.clock_hz / 1e6:,.0f} MHz ({target})"
            return cls(source, *told)
        if target in _DATA_SHEETS:
            return cls(*_DATA_SHEETS[target])
        raise ValueError(f"the peaks of {target} are not known: pass them")


@dataclass(frozen=True, slots=True)
class SpeedupEstimate:
    """What FP8 can gain at most in the linear layers, by roofline: seconds of one forward pass.

    `layers`: each layer's own factor, 1.0 for those that stay in bfloat16.
    """

    speedup: float
    bf16_s: float
    fp8_s: float
    tokens: int
    layers: Mapping[str, float]
    source: str


def estimate(
    shapes: Mapping[str, tuple[int, int]], eligible: set[str], tokens: int, peaks: Peaks
) -> SpeedupEstimate:
    """For linear layers {name: (in, out)} on `tokens` rows, the `eligible` ones in FP8.

    Each product takes the longer of computing and moving its operands (weights quantised before);
    in FP8 the activations are first read in 16 bit and written in 8.
    """
    slow = {name: _bf16(shape, tokens, peaks) for name, shape in shapes.items()}
    fast = {
        name: _fp8(shape, tokens, peaks) if name in eligible else slow[name]
        for name, shape in shapes.items()
    }
    before, after = sum(slow.values()), sum(fast.values())
    factors = {name: slow[name] / fast[name] for name in shapes}
    return SpeedupEstimate(before / after, before, after, tokens, factors, peaks.source)


def _bf16(shape: tuple[int, int], rows: int, peaks: Peaks) -> float:
    inner, outer = shape
    moved = 2 * (rows * inner + inner * outer + rows * outer)
    return max(2 * rows * inner * outer / peaks.bf16, moved / peaks.bandwidth)


def _fp8(shape: tuple[int, int], rows: int, peaks: Peaks) -> float:
    inner, outer = shape
    moved = rows * inner + inner * outer + 2 * rows * outer
    product = max(2 * rows * inner * outer / peaks.fp8, moved / peaks.bandwidth)
    return product + 3 * rows * inner / peaks.bandwidth

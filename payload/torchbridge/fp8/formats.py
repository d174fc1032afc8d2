"""The two float8 formats, and which encoding of them a device computes with."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

import torch

from torchbridge.hardware import Hardware, probe

_FNUZ_TARGETS = ("gfx940", "gfx941", "gfx942")  # CDNA3; later chips compute with OCP's encoding


class FP8Dtype(str, Enum):
    """E4M3: 4 bits of exponent, 3 of mantissa, for weights and activations; E5M2 for gradients.

    Named after OCP's encodings (https://arxiv.org/abs/2209.05433), whose largest numbers they have.
    """

    E4M3 = "e4m3fn"
    E5M2 = "e5m2"

    @property
    def max(self) -> float:
        """Largest finite number: 448 or 57344."""
        return torch.finfo(get_fp8_dtype(self)).max

    @property
    def mantissa_bits(self) -> int:
        """3 or 2; rounding is off by at most 2 ** -(mantissa_bits + 1) of a normal number."""
        return 3 if self is FP8Dtype.E4M3 else 2


def get_fp8_dtype(fmt: FP8Dtype, hardware: Hardware | None = None) -> torch.dtype:
    """torch's dtype for `fmt`: OCP's encoding, or the one that `hardware` has units for.

    AMD's CDNA3 has no negative zero and another exponent bias (fnuz): its e4m3 ends at 240.
    """
    fnuz = hardware is not None and hardware.target.startswith(_FNUZ_TARGETS)
    if FP8Dtype(fmt) is FP8Dtype.E4M3:
        return torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn
    return torch.float8_e5m2fnuz if fnuz else torch.float8_e5m2


def native_dtype(fmt: FP8Dtype, device: torch.device) -> torch.dtype:
    """torch's dtype for `fmt` on `device`."""
    return _native_dtype(fmt, device.index) if device.type == "cuda" else get_fp8_dtype(fmt)


@torch.compiler.assume_constant_result
def _native_dtype(fmt: FP8Dtype, index: int | None) -> torch.dtype:
    return get_fp8_dtype(fmt, _hardware(index))


@lru_cache
def _hardware(index: int | None) -> Hardware:
    return probe(torch.device("cuda", index))


# made once: torch.compile cannot go through an Enum
_FORMATS = {
    get_fp8_dtype(fmt, hardware): fmt
    for fmt in FP8Dtype
    for hardware in (None, Hardware.amd("gfx942"))
}


def format_of(dtype: torch.dtype) -> FP8Dtype:
    """The format of a float8 dtype, whatever its encoding.

    Raises:
        ValueError: not a float8 dtype of these two formats.
    """
    if dtype not in _FORMATS:
        raise ValueError(f"{dtype} is not e4m3 or e5m2")
    return _FORMATS[dtype]

"""A 64-bit integer hash in plain tensor operations: no host round trip, the same on every device.

Arithmetic is modulo 2^64 in int64 (two's complement), so results are exact and order-independent.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The int64 with the bits of an unsigned 64-bit constant."""
    return value - 2**64 if value >= 2**63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
_MULTIPLY_1 = _signed(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = _signed(0x94D049BB133111EB)


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Logical shift; torch's own is arithmetic for int64."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def mix(value: Tensor) -> Tensor:
    """Finaliser of splitmix64: a bijection in which every input bit moves every output bit."""
    value = (value ^ _shift_right(value, 30)) * _MULTIPLY_1
    value = (value ^ _shift_right(value, 27)) * _MULTIPLY_2
    return value ^ _shift_right(value, 31)


def hash_rows(x: Tensor) -> Tensor:
    """[T] int64 from the float32 bits of x [T, d]; 0.0 and -0.0 count as equal."""
    bits = (x.detach().float() + 0.0).contiguous().view(torch.int32).long()
    columns = torch.arange(1, x.shape[1] + 1, device=x.device)
    return mix((bits * (mix(columns * GOLDEN) | 1)).sum(dim=1))

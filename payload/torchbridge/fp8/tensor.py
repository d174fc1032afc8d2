"""A float8 tensor with its scale."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchbridge.fp8.formats import FP8Dtype, format_of
from torchbridge.fp8.scaling import (
    Granularity,
    compute_fp8_scale,
    dequantize_from_fp8,
    quantize_to_fp8,
)


@dataclass(frozen=True, slots=True)
class FP8QuantizedTensor:
    """`data` is float8, `scale` the quantisation scale (data = x * scale), `dtype` that of x."""

    data: Tensor
    scale: Tensor
    dtype: torch.dtype

    @classmethod
    def from_tensor(
        cls,
        x: Tensor,
        fmt: FP8Dtype = FP8Dtype.E4M3,
        *,
        scale: Tensor | None = None,
        granularity: Granularity = Granularity.TENSOR,
        margin: float = 0.0,
    ) -> FP8QuantizedTensor:
        """Quantise `x`, with its own scale or with a given one."""
        if scale is None:
            scale = compute_fp8_scale(x, fmt, margin, granularity=granularity)
        return cls(quantize_to_fp8(x, scale, fmt), scale, x.dtype)

    @property
    def shape(self) -> torch.Size:
        """Shape of the numbers."""
        return self.data.shape

    @property
    def format(self) -> FP8Dtype:
        """E4M3 or E5M2."""
        return format_of(self.data.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the storages of numbers and scales."""
        return self.data.untyped_storage().nbytes() + self.scale.untyped_storage().nbytes()

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """data / scale, in the dtype it came from unless told."""
        return dequantize_from_fp8(self.data, self.scale, dtype or self.dtype)

    def to(self, device: torch.device | str) -> FP8QuantizedTensor:
        """The same numbers on another device."""
        return replace(self, data=self.data.to(device), scale=self.scale.to(device))

    def t(self) -> FP8QuantizedTensor:
        """Transposed, without a copy.

        Raises:
            ValueError: the scales run along rows, so that they do not fit the columns.
        """
        if self.scale.ndim:
            raise ValueError("only a matrix with a single scale can be transposed; quantise x.t()")
        return replace(self, data=self.data.t())

"""Quantising the operands of a product: row by row through the kernel that the registry takes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchbridge.fp8.formats import FP8Dtype, native_dtype
from torchbridge.fp8.scaling import Granularity
from torchbridge.fp8.tensor import FP8QuantizedTensor


def quantised(
    x: Tensor, fmt: FP8Dtype, granularity: Granularity, margin: float = 0.0
) -> FP8QuantizedTensor:
    """x [M, K] with scales of its own; the numbers are those of `FP8QuantizedTensor.from_tensor`.

    Scales of rows are found and used in one kernel where `torchbridge.kernels` has one for the
    device. torch.compile makes its own of the composition, and puts what produced x into it.
    """
    if granularity is Granularity.ROW and margin == 0 and not torch.compiler.is_compiling():
        from torchbridge.kernels.functional import quantise_rows  # which stands on this package

        return quantise_rows(x, native_dtype(fmt, x.device))
    return FP8QuantizedTensor.from_tensor(x, fmt, granularity=granularity, margin=margin)

"""What a linear layer has to do: sizes, numbers, and the bytes that each way of it moves."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchbridge.fp8.scaling import BLOCK

NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


@dataclass(frozen=True, slots=True)
class Job:
    """x [rows, inner] times weight [columns, inner] transposed, in `dtype` where it is not float8.

    `weight_dtype` is that of the weight as it is kept, `kept` says that it is quantised already,
    `stored` that it exists in float8 only, `training` that both gradients are wanted, `split` that
    a float8 product takes a call for each 128 columns that are summed over.
    """

    rows: int
    inner: int
    columns: int
    dtype: torch.dtype = torch.bfloat16
    weight_dtype: torch.dtype = torch.bfloat16
    granularity: str = "tensor"
    training: bool = False
    kept: bool = False
    stored: bool = False
    split: bool = False

    @property
    def sizes(self) -> str:
        """For people: rows x inner x columns."""
        return f"{self.rows} x {self.inner} x {self.columns}"

    @property
    def _numbers(self) -> tuple[int, int, int]:
        """How many there are of x, weight and output."""
        rows, inner, columns = self.rows, self.inner, self.columns
        return rows * inner, columns * inner, rows * columns

    def plain_products(self) -> list[int]:
        """Bytes of each product without float8: operands and result."""
        moved = sum(self._numbers) * self.dtype.itemsize
        return [moved] * (3 if self.training else 1)

    def casting(self) -> list[int]:
        """Bytes of bringing the weight to `dtype`: read and written."""
        if self.stored:
            return [self._numbers[1] * (1 + self.dtype.itemsize)]
        if self.weight_dtype == self.dtype:
            return []
        return [self._numbers[1] * (self.weight_dtype.itemsize + self.dtype.itemsize)]

    def float8_products(self) -> list[int]:
        """Bytes of each call that multiplies float8 operands."""
        x, weight, out = self._numbers
        products = [(x + weight, out * self.dtype.itemsize, out)]
        if self.training:  # by the input, and by the weight in its own dtype
            products.append((out + weight, x * self.dtype.itemsize, x))
            products.append((out + x, weight * self.weight_dtype.itemsize, weight))
        if not self.split:
            return [operands + result for operands, result, _ in products]
        return [
            operands // calls + 4 * numbers
            for (operands, _, numbers), calls in zip(products, self._calls(), strict=False)
            for _ in range(calls)
        ]

    def adding(self) -> list[int]:
        """Bytes of adding up the calls of split products, in float32."""
        x, weight, out = self._numbers
        if not self.split:
            return []
        numbers = (out, x, weight)[: 3 if self.training else 1]
        calls = zip(numbers, self._calls(), strict=False)
        return [12 * number for number, times in calls for _ in range(times)]

    def _calls(self) -> tuple[int, int, int]:
        """How many calls each of the three products is split into."""
        return tuple(-(-width // BLOCK) for width in (self.inner, self.columns, self.rows))

    def quantising(self) -> list[int]:
        """Bytes of each kernel that makes float8 numbers.

        One scale of a tensor takes a look at all of it before; those of rows and blocks are found
        on the way. For the gradients each operand is wanted transposed as well: copied where its
        scale is a single one, quantised anew where it is not.
        """
        x, weight, out = self._numbers
        size, weight_size = self.dtype.itemsize, self.weight_dtype.itemsize
        kernels = self._quantised(x, size)
        if not (self.kept or self.stored):
            kernels += self._quantised(weight, weight_size)
        if self.training:
            kernels += self._quantised(out, size)
            for count, width in ((x, size), (weight, weight_size), (out, size)):
                kernels.append(2 * count if self.granularity == "tensor" else (width + 1) * count)
        return kernels

    def _quantised(self, count: int, size: int) -> list[int]:
        """Bytes of the kernels that quantise `count` numbers of `size` bytes."""
        written = (size + 1) * count
        return [size * count, written] if self.granularity == "tensor" else [written]

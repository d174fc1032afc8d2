"""Choose the inputs of an export and those that verify the file.

Exporters silently treat a dynamic axis of size 1 in the example as constant. So examples have at
least size 2, and every file is tried with several shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.export import Dim

DRAWS = 3  # inputs per shape
LONGEST = sys.maxsize - 1  # torch 2.7 cannot export x[:, None] of an axis without an end

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Example inputs of an export, its dynamic axes (one mapping per input) and the checks."""

    example: Inputs
    dynamic: tuple[dict[int, Dim], ...]
    checks: tuple[Inputs, ...]

    @property
    def shapes(self) -> tuple[dict[int, Dim], ...] | None:
        """Dynamic axes in the form exporters expect; None if there are none."""
        return self.dynamic if any(self.dynamic) else None

    @classmethod
    def from_inputs(
        cls,
        sample_inputs: Tensor | Sequence[Tensor],
        dynamic: Sequence[Mapping[int, Dim]] | None = None,
        checks: Sequence[Sequence[Tensor]] | None = None,
    ) -> Plan:
        """Build a plan from positional inputs.

        `dynamic`: per input, axis -> `torch.export.Dim`; by default axis 0 of all inputs is the
        batch, `()` means no dynamic axis. `checks`: inputs to verify with; by default three of each
        of up to three shapes, drawn from the sample's values.

        Raises:
            ValueError: the axes or the checks do not fit.
        """
        sample = (sample_inputs,) if isinstance(sample_inputs, Tensor) else tuple(sample_inputs)
        axes = _batch_axes(sample) if dynamic is None else _per_input(dynamic, len(sample))
        if checks is None:
            given = draw_inputs(sample, axes)
        else:
            given = tuple(tuple(one) for one in checks)
            _enough(given, moving=any(axes))
        return cls(_example(sample, axes), axes, given)


def draw_inputs(sample: Inputs, axes: Sequence[Mapping[int, Dim]]) -> tuple[Inputs, ...]:
    """Draw `DRAWS` inputs per shape, including the sample, with a fixed seed.

    Shapes: the sample's; every dynamic axis at its minimum; every dynamic axis longer by a
    different step (shorter where `max` forbids more).
    """
    generator = torch.Generator().manual_seed(0)
    sizes = _sizes(sample, axes)
    ways = [{name: size for name, (size, _, _) in sizes.items()}]
    ways.append({name: _least(dim) for name, (_, dim, _) in sizes.items()})
    ways.append({name: other for name, (_, _, other) in sizes.items()})
    drawn: list[Inputs] = [sample]
    seen = []
    for way in ways:
        shapes = [
            _shape(tensor, mapping, way) for tensor, mapping in zip(sample, axes, strict=True)
        ]
        if shapes in seen:
            continue
        seen.append(shapes)
        drawn.extend(
            tuple(_like(t, s, generator) for t, s in zip(sample, shapes, strict=True))
            for _ in range(DRAWS - (way is ways[0]))
        )
    return tuple(drawn)


def _batch_axes(sample: Inputs) -> tuple[dict[int, Dim], ...]:
    from torch.export import Dim

    if len({tensor.shape[0] for tensor in sample if tensor.ndim}) > 1:
        shapes = [tuple(tensor.shape) for tensor in sample]
        raise ValueError(f"inputs {shapes} share no batch axis: say which axes move by dynamic=")
    batch = Dim("batch", max=LONGEST)
    return tuple({0: batch} if tensor.ndim else {} for tensor in sample)


def _per_input(dynamic: Sequence[Mapping[int, Dim]], inputs: int) -> tuple[dict[int, Dim], ...]:
    if not dynamic:
        return ({},) * inputs
    if len(dynamic) != inputs:
        raise ValueError(f"dynamic has {len(dynamic)} mappings for {inputs} inputs")
    return tuple(dict(mapping) for mapping in dynamic)


def _enough(checks: Sequence[Inputs], *, moving: bool) -> None:
    shapes = {tuple(tuple(tensor.shape) for tensor in one) for one in checks}
    if len(checks) < DRAWS or len(shapes) < 1 + moving:
        raise ValueError(
            f"{len(checks)} checks of {len(shapes)} shapes prove too little: give {DRAWS} or more"
            + (", of two shapes or more" if moving else "")
        )


def _sizes(sample: Inputs, axes: Sequence[Mapping[int, Dim]]) -> dict[str, tuple[int, Dim, int]]:
    """Return by name of a dynamic axis: its sample size, the Dim, and another allowed size."""
    sizes: dict[str, tuple[int, Dim, int]] = {}
    for tensor, mapping in zip(sample, axes, strict=True):
        for axis, dim in mapping.items():
            if not hasattr(dim, "__name__") or hasattr(dim, "root"):  # a hint, or 2 * another
                raise ValueError(f"no inputs can be drawn for axis {dim}: pass checks=")
            size = tensor.shape[axis]
            longer = max(size, 2) + 1 + len(sizes)  # never the example's
            other = longer if dim.max is None else min(longer, dim.max)
            if other == size:
                other = max(_least(dim), size - 1)
            sizes.setdefault(dim.__name__, (size, dim, other))
    return sizes


def _least(dim: Dim) -> int:
    return max(1, dim.min or 1)


def _shape(tensor: Tensor, mapping: Mapping[int, Dim], way: Mapping[str, int]) -> tuple[int, ...]:
    shape = list(tensor.shape)
    for axis, dim in mapping.items():
        shape[axis] = way[dim.__name__]
    return tuple(shape)


def _like(tensor: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw numbers from the tensor's own, so that ids stay valid; normal ones if all are equal."""
    own = tensor.detach().cpu().flatten()
    if not own.numel():
        raise ValueError(f"an input of shape {tuple(tensor.shape)} has no numbers: pass checks=")
    if tensor.is_floating_point() and bool((own == own[0]).all()):
        drawn = torch.randn(shape, generator=generator).to(tensor.dtype)
    else:
        size = torch.Size(shape).numel()
        drawn = own[torch.randint(own.numel(), (size,), generator=generator)].reshape(shape)
    return drawn.to(tensor.device)


def _example(sample: Inputs, axes: Sequence[Mapping[int, Dim]]) -> Inputs:
    """Return a copy of the sample whose dynamic axes of size 1 are repeated to size 2."""
    example = []
    for tensor, mapping in zip(sample, axes, strict=True):
        for axis in mapping:
            if tensor.shape[axis] == 1:
                tensor = torch.cat([tensor, tensor], dim=axis)
        example.append(tensor.clone())  # a model may write into it
    return tuple(example)

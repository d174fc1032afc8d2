"""Replacing the linear layers of a model, in place or in a copy; buffers that keep their dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import Tensor, nn

from torchbridge.fp8.linear import NativeFP8Linear

Make = Callable[[nn.Linear], nn.Module]


def linear_layers(model: nn.Module, skip: Iterable[str] = ()) -> dict[str, nn.Linear]:
    """Plain nn.Linear layers by name ("" for the model itself), but those that match `skip`.

    Subclasses are left alone: nn.MultiheadAttention, for one, reads its projection's weight itself.
    """
    patterns = tuple(skip)
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and not any(fnmatchcase(name, one) for one in patterns)
    }


def replace_modules(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Put the replacements in wherever their originals are used; returns the model."""
    for name, child in list(model.named_modules(remove_duplicate=False)):
        if name and child in replacements:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, replacements[child])
    return replacements.get(model, model)


def copy_with(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """A deep copy that has the replacements; what was replaced is never copied."""
    return copy.deepcopy(model, {id(old): new for old, new in replacements.items()})


def adopt(linear: nn.Linear, layer: nn.Linear) -> nn.Linear:
    """`layer` with the very parameters and mode of `linear`."""
    layer.weight, layer.bias = linear.weight, linear.bias
    return layer.train(linear.training)


def convert_model_to_native_fp8(
    model: nn.Module, *, inplace: bool = False, skip: Iterable[str] = (), **settings: object
) -> nn.Module:
    """`model` with NativeFP8Linear for every nn.Linear whose name matches no pattern of `skip`.

    In place the layers keep their very Parameters, so that an optimiser stays valid. `settings`
    are NativeFP8Linear's: formats, granularity, margin, path.

    Raises:
        ValueError: the model has no layer to convert.
    """
    if not inplace:
        model = copy.deepcopy(model)
    return convert_linears(model, lambda linear: _native(linear, settings), skip)


def convert_linears(model: nn.Module, make: Make, skip: Iterable[str] = ()) -> nn.Module:
    """Replace the layers in place by what `make` makes of them.

    Raises:
        ValueError: the model has no layer to convert.
    """
    found = linear_layers(model, skip)
    if not found:
        raise ValueError(f"{type(model).__name__} has no nn.Linear to convert")
    return replace_modules(model, {linear: make(linear) for linear in found.values()})


def _native(linear: nn.Linear, settings: dict[str, object]) -> nn.Linear:
    """A NativeFP8Linear in the place of `linear`."""
    widths = linear.in_features, linear.out_features
    layer = NativeFP8Linear(*widths, linear.bias is not None, device="meta", **settings)
    return adopt(linear, layer)


class PinnedDtypes(nn.Module):
    """`.half()` and `.to(dtype)` leave the buffers named in `pinned` as they are.

    float8 numbers would grow, and scales leave the range of float16.
    """

    pinned: tuple[str, ...] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        before = {name: getattr(self, name) for name in self.pinned}
        super()._apply(fn, recurse)
        for name, old in before.items():
            moved = getattr(self, name)
            if moved is not None and moved.dtype != old.dtype:
                setattr(self, name, old.to(moved.device))
        return self

"""Replace the linear layers of a model, in place or in a copy; keep the dtypes of buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import Tensor, nn

from torchbridge.fp8.linear import NativeFP8Linear

Make = Callable[[nn.Linear], nn.Module]


def linear_layers(model: nn.Module, skip: Iterable[str] = ()) -> dict[str, nn.Linear]:
    """Return the nn.Linear layers by name ("" for the model itself) that match no `skip` pattern.

    Subclasses are excluded: nn.MultiheadAttention, for one, reads its projection's weight itself.
    """
    patterns = tuple(skip)
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and not any(fnmatchcase(name, one) for one in patterns)
    }


def replace_modules(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Replace modules wherever they are used; return the model."""
    for name, child in list(model.named_modules(remove_duplicate=False)):
        if name and child in replacements:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, replacements[child])
    return replacements.get(model, model)


def copy_with(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return a deep copy with replaced modules; the originals are not copied."""
    return copy.deepcopy(model, {id(old): new for old, new in replacements.items()})


def adopt(linear: nn.Linear, layer: nn.Linear) -> nn.Linear:
    """Give `layer` the parameters (shared) and the mode of `linear`; return it."""
    layer.weight, layer.bias = linear.weight, linear.bias
    return layer.train(linear.training)


def convert_model_to_native_fp8(
    model: nn.Module, *, inplace: bool = False, skip: Iterable[str] = (), **settings: object
) -> nn.Module:
    """Replace every nn.Linear that matches no `skip` pattern by NativeFP8Linear.

    In place the parameters are kept, so an optimizer stays valid. `settings` are NativeFP8Linear's:
    formats, granularity, margin, path.

    Raises:
        ValueError: the model has no layer to convert.
    """
    if not inplace:
        model = copy.deepcopy(model)
    return convert_linears(model, lambda linear: _native(linear, settings), skip)


def convert_linears(model: nn.Module, make: Make, skip: Iterable[str] = ()) -> nn.Module:
    """Replace the linear layers in place by the results of `make`.

    Raises:
        ValueError: the model has no layer to convert.
    """
    return replace_modules(model, replacements_of(model, make, skip))


def replacements_of(
    model: nn.Module, make: Make, skip: Iterable[str] = ()
) -> dict[nn.Module, nn.Module]:
    """Return the result of `make` for each linear layer, by that layer.

    Raises:
        ValueError: the model has no layer to convert.
    """
    found = linear_layers(model, skip)
    if not found:
        raise ValueError(f"{type(model).__name__} has no nn.Linear to convert")
    return {linear: make(linear) for linear in found.values()}


def _native(linear: nn.Linear, settings: dict[str, object]) -> nn.Linear:
    """Return a NativeFP8Linear with the parameters and mode of `linear`."""
    widths = linear.in_features, linear.out_features
    layer = NativeFP8Linear(*widths, linear.bias is not None, device="meta", **settings)
    return adopt(linear, layer)


class PinnedDtypes(nn.Module):
    """Module whose buffers named in `pinned` keep their dtype in `.half()` and `.to(dtype)`.

    Float8 numbers would grow, and scales exceed the range of float16.
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

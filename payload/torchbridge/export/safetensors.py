"""SafeTensors: a model's tensors by name, without code. Shared tensors are stored once."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import KEY, OptimizationMetadata
from torchbridge.export.publish import publish, require
from torchbridge.export.result import (
    Exported,
    ExportMismatch,
    ExportResult,
    ExportUnavailable,
    Verified,
)

if TYPE_CHECKING:
    from torch.export import Dim

FORMAT = "safetensors"
ALIASES = "aliases"
ADVICE = "Some hook changes the weights on their way out of the model or into it: remove it."


def export_to_safetensors(
    model: nn.Module,
    path: str | Path,
    sample_inputs: Tensor | Sequence[Tensor],
    *,
    dynamic: Sequence[Mapping[int, Dim]] | None = None,
    checks: Sequence[Sequence[Tensor]] | None = None,
    tolerance: float | None = None,
    metadata: OptimizationMetadata | None = None,
) -> ExportResult:
    """Write the state_dict and verify it in a copy whose own weights were wiped.

    Every tensor must come back bit for bit, and the copy must compute what the model computes;
    `dynamic` and `checks` as in `Plan.of`, they only choose the inputs of that comparison.

    Raises:
        ExportUnavailable: the package is missing, or the state holds more than tensors.
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: axes or checks do not fit.
    """
    require(FORMAT, "safetensors")
    plan = Plan.of(sample_inputs, dynamic, checks)
    tensors, aliases = stored_tensors(model)

    def write(draft: Path, facts: str) -> None:
        from safetensors.torch import save_file

        save_file(tensors, draft, {KEY: facts, ALIASES: json.dumps(aliases)})

    def load(draft: Path) -> Exported:
        copied = _wiped(model)
        exported = load_safetensors(draft, copied)
        _same_bits(copied.state_dict(), model.state_dict())
        return exported

    settings = {"tolerance": tolerance, "metadata": metadata, "advice": ADVICE}
    return publish(FORMAT, path, model, plan, write=write, load=load, **settings)


def stored_tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors to store by name, and the names that mean the same tensor as another.

    Raises:
        ExportUnavailable: an entry of the state_dict is no tensor.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            missing = f"{name!r} in the state_dict is a {type(tensor).__name__}, not a tensor"
            raise ExportUnavailable(FORMAT, missing, "use torch.save, or export_to_torch_export")
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and place in first:
            aliases[name] = first[place]
            continue
        first[place] = name
        alone = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        tensors[name] = tensor if alone else tensor.clone(memory_format=torch.contiguous_format)
    return tensors, aliases


def load_safetensors(path: str | Path, model: nn.Module) -> Exported:
    """Fill `model` with the tensors of a file; it must have the same names, shapes and dtypes.

    Raises:
        ExportUnavailable: the package is missing.
        ValueError: names, shapes or dtypes differ: nothing is cast silently.
    """
    require(FORMAT, "safetensors")
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        told = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for alias, name in json.loads(told.get(ALIASES, "{}")).items():
        tensors[alias] = tensors[name]
    _refuse_other(tensors, model.state_dict(), path)
    model.load_state_dict(tensors)
    facts = OptimizationMetadata.from_json(told[KEY]) if KEY in told else None
    return Exported(FORMAT, model, facts)


def _refuse_other(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path) -> None:
    odd = sorted(set(found) ^ set(wanted))
    for name in set(found) & set(wanted):
        here, there = wanted[name], found[name]
        if (here.shape, here.dtype) != (there.shape, there.dtype):
            odd.append(f"{name} {there.dtype}{list(there.shape)}")
    if odd:
        raise ValueError(f"{path} does not fit the model: {', '.join(odd[:5])} ({len(odd)} in all)")


def _same_bits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    other = [
        Verified((tuple(one.shape),), math.inf, 0.0, f"{name} came back with other bits")
        for name, one in wanted.items()
        if not torch.equal(_bits(one), _bits(found[name]))
    ]
    if other:
        raise ExportMismatch(FORMAT, other, "Nothing may be cast on the way.")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.cpu().contiguous().flatten().view(torch.uint8)


def _wiped(model: nn.Module) -> nn.Module:
    """A copy in eval mode that knows none of the numbers."""
    wiped = copy.deepcopy(model).eval()
    with torch.no_grad():
        for tensor in wiped.state_dict().values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
    return wiped

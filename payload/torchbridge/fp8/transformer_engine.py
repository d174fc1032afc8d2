"""Train in FP8 by NVIDIA's Transformer Engine, if it is installed.

API: https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/common.html. Functions
take the package as an argument, so that tests need no installation.
"""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torchbridge.float8 import FP8Dtype
from torchbridge.fp8.conversion import adopt
from torchbridge.hardware import probe

if TYPE_CHECKING:
    from torchbridge.fp8.training import FP8Config

ALIGNMENT = 16  # widths that its FP8 products need
_FORMATS = {  # forward and backward
    (FP8Dtype.E4M3, FP8Dtype.E5M2): "HYBRID",
    (FP8Dtype.E4M3, FP8Dtype.E4M3): "E4M3",
    (FP8Dtype.E5M2, FP8Dtype.E5M2): "E5M2",
}


def why_not(device: torch.device, config: FP8Config) -> str | None:
    """Return why Transformer Engine cannot train by `config` on `device`; None if it can."""
    if importlib.util.find_spec("transformer_engine") is None:
        return "transformer_engine not installed"
    hardware = probe(device)
    if hardware.vendor != "nvidia" or not hardware.has("fp8"):
        return f"transformer_engine needs sm_89 or later; this is {hardware.target or device}"
    return _lacking(config)


def _lacking(config: FP8Config) -> str | None:
    """What the config asks for and Transformer Engine's recipes here do not have."""
    formats = config.forward_format, config.backward_format
    if formats not in _FORMATS:
        return f"transformer_engine has no formats {formats[0].name}/{formats[1].name}"
    if config.granularity != "tensor" or config.path not in (None, "auto", "predicted"):
        asked = f"granularity={config.granularity!r} and path={config.path!r}"
        return f"transformer_engine has one scale per tensor and a path of its own, not {asked}"
    return None


def load() -> ModuleType:
    """Import the package with the parts used here.

    Raises:
        ImportError: it is not installed, or does not fit this torch.
    """
    for part in ("transformer_engine.pytorch", "transformer_engine.common.recipe"):
        importlib.import_module(part)
    return importlib.import_module("transformer_engine")


def recipe(config: FP8Config, te: ModuleType) -> Any:
    """Return Transformer Engine's recipe for `config`.

    `scaling_factor_compute_algo` is None, which selects its default formula.

    Raises:
        ValueError: this Transformer Engine lacks the formats, scales or path.
    """
    recipes = te.common.recipe
    if (reason := _lacking(config)) is not None:
        raise ValueError(reason)
    formats = config.forward_format, config.backward_format
    fp8_format = getattr(recipes.Format, _FORMATS[formats])
    if config.scaling == "delayed":
        return recipes.DelayedScaling(
            margin=config.margin,
            fp8_format=fp8_format,
            amax_history_len=config.amax_history_len,
            amax_compute_algo=config.amax_compute_algo,
            scaling_factor_compute_algo=None,
        )
    if not hasattr(recipes, "Float8CurrentScaling"):
        raise ValueError("this transformer_engine has no dynamic scaling; use scaling='delayed'")
    return recipes.Float8CurrentScaling(fp8_format=fp8_format)


def linear(original: nn.Linear, te: ModuleType) -> nn.Module:
    """Create Transformer Engine's layer with the parameters of `original`."""
    layer = te.pytorch.Linear(
        original.in_features,
        original.out_features,
        bias=original.bias is not None,
        params_dtype=original.weight.dtype,
        device=original.weight.device,
    )
    return adopt(original, layer)


def autocast(config: FP8Config, te: ModuleType) -> AbstractContextManager[Any]:
    """Return a context in which its layers compute by the recipe of `config`."""
    return te.pytorch.fp8_autocast(enabled=True, fp8_recipe=recipe(config, te))


def fits(layer: nn.Linear) -> bool:
    """Return whether a layer's widths fit FP8 products."""
    return layer.in_features % ALIGNMENT == layer.out_features % ALIGNMENT == 0

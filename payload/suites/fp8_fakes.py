"""Transformer Engine as an argument: it records what it is asked for, and computes plainly."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace

from torch import nn

ALLOWED = {"margin", "fp8_format", "amax_history_len", "amax_compute_algo"}
ALLOWED |= {"scaling_factor_compute_algo"}


class Format(Enum):
    """Its names for pairs of formats, forward and backward."""

    E4M3 = "e4m3 both"
    E5M2 = "e5m2 both"
    HYBRID = "e4m3 forward, e5m2 backward"


Calls = list[tuple[str, dict]]


def fake_transformer_engine(*, current: bool = True) -> SimpleNamespace:
    """A package with `.pytorch` and `.common.recipe`; `.calls` has what was asked of it.

    It refuses what the real one refuses (https://docs.nvidia.com/deeplearning/transformer-engine):
    unknown arguments, algorithms that are no such word, a scaling function that is a word.
    `current`: does it have Float8CurrentScaling?
    """
    calls: Calls = []
    common = SimpleNamespace(recipe=_recipes(calls, current))
    return SimpleNamespace(pytorch=_pytorch(calls), common=common, calls=calls)


def _recipes(calls: Calls, current: bool) -> SimpleNamespace:
    """transformer_engine.common.recipe."""

    def delayed(**given) -> SimpleNamespace:
        assert set(given) <= ALLOWED, set(given) - ALLOWED
        assert given["amax_compute_algo"] in ("max", "most_recent")
        function = given["scaling_factor_compute_algo"]
        assert function is None or callable(function), "Input should be callable"
        assert isinstance(given["fp8_format"], Format)
        calls.append(("DelayedScaling", given))
        return SimpleNamespace(**given)

    def current_scaling(*, fp8_format: Format) -> SimpleNamespace:
        calls.append(("Float8CurrentScaling", {"fp8_format": fp8_format}))
        return SimpleNamespace(fp8_format=fp8_format)

    recipes = SimpleNamespace(Format=Format, DelayedScaling=delayed)
    if current:
        recipes.Float8CurrentScaling = current_scaling
    return recipes


def _pytorch(calls: Calls) -> SimpleNamespace:
    """transformer_engine.pytorch."""
    within: list[object] = []

    class Linear(nn.Linear):
        """te.pytorch.Linear's arguments."""

        def __init__(self, in_features, out_features, bias=True, *, params_dtype, device) -> None:
            super().__init__(in_features, out_features, bias, dtype=params_dtype, device=device)
            calls.append(("Linear", {"widths": (in_features, out_features), "bias": bias}))

        def forward(self, x):
            calls.append(("forward", {"within": list(within)}))
            return super().forward(x)

    @contextmanager
    def fp8_autocast(*, enabled, fp8_recipe):
        calls.append(("fp8_autocast", {"enabled": enabled, "fp8_recipe": fp8_recipe}))
        within.append(fp8_recipe)
        yield
        within.pop()

    return SimpleNamespace(Linear=Linear, fp8_autocast=fp8_autocast)

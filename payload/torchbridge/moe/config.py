"""Configuration of a mixture-of-experts layer, validated at construction."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch

ACTIVATIONS = ("relu", "gelu", "silu")
DISPATCHES = ("auto", "grouped_mm", "triton", "triton_grouped", "slots", "segments")
LOSSES = ("switch", "gshard", "entropy")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEConfig:
    """Settings of a layer.

    An assignment is one (token, expert) pair; there are `tokens * top_k` per call. By default all
    are computed. With `drop_tokens` an expert computes at most `capacity(tokens)` of them; the
    others, with the lowest router probabilities, are dropped and counted.
    """

    num_experts: int = 8
    top_k: int = 2
    drop_tokens: bool = False
    capacity_factor: float = 1.25
    min_capacity: int = 4
    expert_dropout: float = 0.1
    router_dropout: float = 0.1
    load_balance_loss_type: str = "switch"
    load_balance_loss_weight: float = 0.01
    router_z_loss_weight: float = 0.001
    expert_parallelism: bool = False
    use_bias: bool = True
    activation: str = "relu"
    normalize_router_probs: bool = True
    dispatch: str = "auto"

    def __post_init__(self) -> None:
        _require(self.num_experts >= 1, "num_experts must be at least 1", self.num_experts)
        in_range = 1 <= self.top_k <= self.num_experts
        _require(in_range, f"top_k must be in 1..{self.num_experts} (num_experts)", self.top_k)
        _require(self.capacity_factor > 0, "capacity_factor must be positive", self.capacity_factor)
        _require(self.min_capacity >= 0, "min_capacity must not be negative", self.min_capacity)
        for name in ("expert_dropout", "router_dropout"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"{name} must be in [0, 1)", value)
        for name in ("load_balance_loss_weight", "router_z_loss_weight"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative", getattr(self, name))
        self._check_choices()

    def _check_choices(self) -> None:
        choices = {
            "activation": ACTIVATIONS,
            "dispatch": DISPATCHES,
            "load_balance_loss_type": LOSSES,
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            _require(value in allowed, f"{name} must be one of {', '.join(allowed)}", value)
        both = self.expert_parallelism and self.drop_tokens
        _require(not both, "expert_parallelism is dropless: drop_tokens must be False", True)

    def capacity(self, tokens: int) -> int:
        """Return an expert's capacity, `ceil(capacity_factor * tokens * top_k / E)` assignments.

        It is at least `min_capacity` and at most `tokens`. The factor is evaluated as the decimal
        it was written as: 1.1 x 10 is 11, not the 12 of binary fractions.
        """
        above, below = _ratio(self.capacity_factor)
        share = -(-above * tokens * self.top_k // (below * self.num_experts))  # rounded up
        return min(tokens, max(self.min_capacity, share))


@torch.compiler.assume_constant_result
def _ratio(decimal: float) -> tuple[int, int]:
    return Fraction(str(decimal)).as_integer_ratio()


def _require(condition: bool, rule: str, value: object) -> None:
    if not condition:
        raise ValueError(f"MoEConfig: {rule}, got {value!r}")

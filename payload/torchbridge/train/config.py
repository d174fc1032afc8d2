"""The settings of a training run, validated at construction, and the choice of its precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from torchbridge.hardware import Hardware

PRECISIONS = ("auto", "float32", "bfloat16", "float16")
_FEATURES = {"bfloat16": "bf16", "float16": "fp16"}
SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of a training run; a step is one update of the weights from `accumulate` batches.

    `precision` "auto" is bfloat16 autocast if native, else float16 with loss scaling if native,
    else float32. `fused` None uses the fused AdamW if it works. `clip_norm` limits the norm of all
    gradients together. `compile_backend` is the backend of torch.compile, or None for eager mode.
    `seed` is set before the first step; None keeps the random state.

    `graphed` captures steps in a CUDA graph, so Python code other than tensor operations runs only
    once. None captures if that is expected to be faster (on CUDA, with little work per step and no
    random numbers on the host); True raises an error if it is impossible.
    """

    epochs: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    accumulate: int = 1
    clip_norm: float | None = None
    precision: str = "auto"
    fused: bool | None = None
    compile_backend: str | Callable | None = None
    graphed: bool | None = None
    schedule: str = "constant"
    warmup_steps: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "accumulate"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1", getattr(self, name))
        for name in ("weight_decay", "warmup_steps"):
            value = getattr(self, name)
            _require(value >= 0, f"{name} must not be negative", value)
        _require(self.learning_rate > 0, "learning_rate must be positive", self.learning_rate)
        clips = self.clip_norm is None or self.clip_norm > 0
        _require(clips, "clip_norm must be positive", self.clip_norm)
        for name, allowed in (("precision", PRECISIONS), ("schedule", SCHEDULES)):
            value = getattr(self, name)
            _require(value in allowed, f"{name} must be one of {', '.join(allowed)}", value)


def _require(condition: bool, what: str, got: object) -> None:
    if not condition:
        raise ValueError(f"{what}, got {got!r}")


@dataclass(frozen=True, slots=True)
class Precision:
    """Precision of a run: `dtype` of autocast (None: float32), and whether losses are scaled.

    `reason` is the reason for the choice, as a sentence.
    """

    dtype: torch.dtype | None
    scaled: bool
    reason: str

    @property
    def amp(self) -> bool:
        """Whether autocast is used."""
        return self.dtype is not None


def choose_precision(hardware: Hardware, wanted: str = "auto") -> Precision:
    """Return the precision for `wanted`, one of `PRECISIONS`.

    Losses are scaled in float16, because small gradients underflow; bfloat16 has float32's range.

    Raises:
        ValueError: the requested precision is not native to the hardware.
    """
    chip = hardware.target or hardware.name
    if wanted == "float32":
        return Precision(None, False, "float32 was asked for")
    if wanted != "auto":
        feature = _FEATURES[wanted]
        if not hardware.has(feature):
            raise ValueError(f"{chip} does not compute {feature} natively; use 'auto' or 'float32'")
        return _autocast(wanted, f"{wanted} was asked for")
    for name, feature in _FEATURES.items():
        if hardware.has(feature):
            return _autocast(name, f"{chip} computes {feature} natively")
    return Precision(None, False, f"{chip} computes neither bf16 nor fp16 natively")


def _autocast(name: str, reason: str) -> Precision:
    return Precision(getattr(torch, name), name == "float16", reason)

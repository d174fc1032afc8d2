"""What to compute in: what the hardware has, and no AMP where it would only cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchbridge.hardware import Hardware

_FEATURES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True)
class Precision:
    """`dtype` of the autocast, None for float32 throughout; `scaled`: are losses scaled?"""

    dtype: torch.dtype | None
    scaled: bool
    reason: str

    @property
    def amp(self) -> bool:
        """Is anything computed in 16 bit?"""
        return self.dtype is not None


def choose_precision(hardware: Hardware, wanted: str = "auto") -> Precision:
    """The precision for `wanted`, one of `torchbridge.train.config.PRECISIONS`.

    float16 is scaled, since its gradients underflow; bfloat16 has float32's range.

    Raises:
        ValueError: a precision asked for by name is not native to the hardware.
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

"""The back-ends of torch's scaled_dot_product_attention: asked, switched off, put in order."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchbridge.attention.paths import PathRefused

if TYPE_CHECKING:
    from torchbridge.attention.call import Call

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
_NAMES = {int(value): name for name, value in BACKENDS.items()}
_ASKED = ("cuda", "xpu")
_choose = getattr(torch, "_fused_sdp_choice", None)


def sdpa(call: Call, arguments: dict[str, Any]) -> Tensor:
    """By the back-end that torch chooses."""
    return F.scaled_dot_product_attention(call.q, call.k, call.v, **arguments)


def chosen(call: Call, arguments: dict[str, Any]) -> str | None:
    """The back-end torch chooses for such a call, by its own word; None if it does not tell."""
    if _choose is None or torch.compiler.is_compiling():
        return None
    if not call.q.is_cpu and call.q.device.type not in _ASKED:
        return None
    return _NAMES.get(int(_choose(call.q, call.k, call.v, **arguments)))


def computable(call: Call, arguments: dict[str, Any]) -> list[str]:
    """The back-ends that would compute this, by torch's own word."""
    return [name for name in BACKENDS if _would(call, arguments, name)]


def _would(call: Call, arguments: dict[str, Any], backend: str) -> bool:
    with sdpa_kernel(BACKENDS[backend]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says why one cannot; another can
        try:
            return chosen(call, arguments) == backend
        except RuntimeError:  # "no available kernel"
            return False


def by_backend(call: Call, arguments: dict[str, Any], backend: str) -> Tensor:
    """With all other back-ends switched off.

    Raises:
        PathRefused: it cannot compute this.
    """
    with sdpa_kernel(BACKENDS[backend]):
        try:
            found = chosen(call, arguments)
            if found in (backend, None):
                return sdpa(call, arguments)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = f"torch has no such kernel for these inputs on {call.q.device.type}"
            raise PathRefused(f"sdpa_{backend}", reason) from error
    raise PathRefused(f"sdpa_{backend}", f"torch takes {found} though all else is switched off")

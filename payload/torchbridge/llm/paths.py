"""Which attention kernels really run, as seen by the dispatcher rather than by a setting."""

from __future__ import annotations

import torch
from torch import Tensor

from torchbridge.llm.cache import KVCache
from torchbridge.llm.gpt2 import GPT2
from torchbridge.passes import AttentionOperators


@torch.no_grad()
def attention_path(model: GPT2, ids: Tensor) -> str:
    """The kernels of a prefill of ids [B, T] and of a decode step; `math` if there are none."""
    cache = KVCache.of(model, ids.shape[0], ids.shape[1] + 1)
    kernels = []
    for part in (ids, ids[:, -1:]):
        with AttentionOperators() as operators:
            model(part, cache)
        kernels.append(", ".join(sorted(operators.names)) or "math")
    return f"prefill {kernels[0]}; decode {kernels[1]}"

"""Which attention kernels really run, as seen by the dispatcher rather than by a setting."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchbridge.llm.cache import KVCache
from torchbridge.llm.gpt2 import GPT2


class _Recorder(TorchDispatchMode):
    """The names of the attention operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        if "attention" in name:
            self.seen.append(name.strip("_"))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def attention_path(model: GPT2, ids: Tensor) -> str:
    """The kernels of a prefill of ids [B, T] and of a decode step; `math` if there are none."""
    cache = KVCache.of(model, ids.shape[0], ids.shape[1] + 1)
    kernels = []
    for part in (ids, ids[:, -1:]):
        with _Recorder() as recorder:
            model(part, cache)
        kernels.append(", ".join(sorted(set(recorder.seen))) or "math")
    return f"prefill {kernels[0]}; decode {kernels[1]}"

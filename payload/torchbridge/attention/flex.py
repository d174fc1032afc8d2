"""FlexAttention: compiled, with block masks that are kept. A pattern's blocks that hide every key
are skipped; uncompiled, FlexAttention would materialise all scores.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from types import FunctionType

import torch
from torch import Tensor

from torchbridge.attention.paths import Path, PathRefused
from torchbridge.attention.patterns import Pattern
from torchbridge.attention.sdpa import Call

try:
    from torch.nn.attention import flex_attention as torch_flex
except ImportError:  # built without
    torch_flex = None


class BlockMasks:
    """Block masks by all that they depend on; the least recently used goes first."""

    def __init__(self, size: int = 32) -> None:
        self.size = size
        self.hits = 0
        self.misses = 0
        self._masks: OrderedDict[tuple, object] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._masks)

    @torch.inference_mode(False)  # what is kept may be wanted for training
    def get(self, pattern: Pattern, scores: tuple[int, int, int, int], device: torch.device):
        """The block mask of `pattern` for scores (B, H, Q, K) on `device`; None if it has none."""
        mod = pattern.mask_mod(device)
        if mod is None:
            return None
        batch, heads, queries, keys = scores
        batch = batch if pattern.per_batch else None
        heads = heads if pattern.per_head else None
        key = (pattern, batch, heads, queries, keys, device)
        with self._lock:
            if key in self._masks:
                self.hits += 1
                self._masks.move_to_end(key)
                return self._masks[key]
            self.misses += 1
        mask = torch_flex.create_block_mask(mod, batch, heads, queries, keys, device=str(device))
        with self._lock:
            self._masks[key] = mask
            while len(self._masks) > self.size:
                self._masks.popitem(last=False)
        return mask

    def clear(self) -> None:
        """Forget all, and count from zero."""
        with self._lock:
            self._masks.clear()
            self.hits = self.misses = 0


block_masks = BlockMasks()


def why_not(call: Call, *, compiled: bool = True) -> str | None:
    """Why FlexAttention cannot compute this; None when it can."""
    if call.mask is not None:
        return "FlexAttention takes patterns, not dense masks"
    if call.dropout:
        return "FlexAttention has no dropout"
    if call.q.device.type == "cpu" and call.wants_gradient:
        return "FlexAttention has no CPU backward"
    return why_not_on(call.q.device, compiled=compiled)


def why_not_on(device: torch.device, *, compiled: bool = True) -> str | None:
    """Why there is no FlexAttention on this device; None when there is."""
    if torch_flex is None:
        return f"torch {torch.__version__} has no FlexAttention"
    if device.type not in ("cpu", "cuda", "xpu"):
        return f"FlexAttention has no kernel for {device.type}"
    return _no_compiler(device.type) if compiled else None


@lru_cache
def _no_compiler(kind: str) -> str | None:
    """Why torch.compile makes no FlexAttention kernel for this kind of device."""
    if kind != "cpu":
        from torch.utils._triton import has_triton

        return None if has_triton() else f"FlexAttention on {kind} needs triton"
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except Exception as error:  # inductor's own type has moved between versions
        return f"FlexAttention on the CPU needs a C++ compiler: {type(error).__name__}"
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return "FlexAttention on the CPU needs AVX2"
    return None


@lru_cache(maxsize=64)
def _kernel(kind: Hashable):
    """A compiled FlexAttention for patterns of one kind.

    torch compiles a function for 8 shapes at most, for all callers together: so each kind gets a
    code object of its own. `fullgraph`: past the limit it raises instead of running uncompiled.
    """
    plain = torch_flex.flex_attention
    code = plain.__code__.replace(co_name=f"flex_attention_{hash(kind) % 2**32:08x}")
    own = FunctionType(code, plain.__globals__, None, plain.__defaults__, plain.__closure__)
    own.__kwdefaults__ = plain.__kwdefaults__
    return torch.compile(own, fullgraph=True)


@torch.compiler.disable  # inside of another compiled function its kernel stays one of its own
def by_flex(call: Call, *, compiled: bool = True) -> tuple[Tensor, Path]:
    """Through FlexAttention, uncompiled only if asked for.

    Raises:
        PathRefused: it cannot compute this, or torch.compile cannot make a kernel for it.
    """
    name = "flex" if compiled else "flex_eager"
    reason = why_not(call, compiled=compiled)
    if reason is not None:
        raise PathRefused(name, reason)
    pattern, device = call.pattern, call.q.device
    mask = block_masks.get(pattern, call.scores, device)
    run = _kernel(pattern.kind) if compiled else torch_flex.flex_attention
    tensors = (call.q, call.k, call.v)
    if not call.wants_gradient:  # it looks at the inputs, not at the mode
        tensors = tuple(x.detach() for x in tensors)
    options = {"scale": call.scale, "enable_gqa": call.grouped}
    try:
        output = run(*tensors, pattern.score_mod(device), mask, **options)
    except Exception as error:  # of whatever type the compiler of this torch raises
        first = (str(error).splitlines() or [""])[0]
        raise PathRefused(name, f"{type(error).__name__}: {first}") from error
    return output, Path(name, "no mask" if mask is None else "block mask")

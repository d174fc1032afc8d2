"""Compiled FlexAttention with cached block masks; fully masked blocks are skipped."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from itertools import product
from types import FunctionType

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.attention.call import Call, Path, PathRefused
from torchbridge.attention.patterns import MaskMod, Pattern
from torchbridge.lru import LRUCache

try:
    from torch.nn.attention import flex_attention as torch_flex
except ImportError:  # torch is built without it
    torch_flex = None


BLOCK = 128  # queries and keys of a block
AT_ONCE = 2**22  # scores that are evaluated at a time


class BlockMasks(LRUCache):
    """Cache of block masks, keyed by all that they depend on."""

    @torch.inference_mode(False)  # cached masks may be used in training
    def lookup(self, pattern: Pattern, scores: tuple[int, int, int, int], device: torch.device):
        """Return the block mask of `pattern` for scores (B, H, Q, K); None if it masks nothing."""
        if pattern.mask_mod(device) is None:
            return None
        batch, heads, queries, keys = scores
        batch = batch if pattern.per_batch else None
        heads = heads if pattern.per_head else None
        key = (pattern, batch, heads, queries, keys, device)
        return self.get(key, lambda: block_mask(pattern, scores, device))


block_masks = BlockMasks(32)


def block_mask(pattern: Pattern, scores: tuple[int, int, int, int], device: torch.device):
    """Compute which blocks of scores (B, H, Q, K) are masked, partly visible or fully visible.

    Returns None if the pattern masks nothing. torch's `create_block_mask` evaluates all scores at
    once, at ten bytes each; here `AT_ONCE` scores, or one row of blocks, are evaluated at a time.
    Within torch.compile all are evaluated, but the compiler stores none of them.
    """
    mod, (batch, heads, queries, keys) = pattern.mask_mod(device), scores
    if mod is None:
        return None
    batch, heads = batch if pattern.per_batch else 1, heads if pattern.per_head else 1
    b, h, q, k = (torch.arange(size, device=device) for size in (batch, heads, queries, keys))
    if torch.compiler.is_compiling():
        seen = _seen(mod, b, h, q, k)
    else:
        rows = q.split(BLOCK * max(1, AT_ONCE // (BLOCK * keys)))
        parts = [
            _seen(mod, i, j, some, k) for i, j in product(b.split(1), h.split(1)) for some in rows
        ]
        seen = torch.cat(parts, dim=2).view(batch, heads, -1, parts[0].shape[3])
    whole = seen == BLOCK * BLOCK
    found = (*_ordered((seen > 0) & ~whole), *_ordered(whole))
    options = {"BLOCK_SIZE": BLOCK, "mask_mod": mod, "seq_lengths": (queries, keys)}
    return torch_flex.BlockMask.from_kv_blocks(*found, **options)


def _seen(mod: MaskMod, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return how many keys are visible in each block: [B, H, Q / 128, K / 128] int32."""
    visible = mod(b.view(-1, 1, 1, 1), h.view(-1, 1, 1), q[:, None], k)
    visible = visible.expand(len(b), len(h), len(q), len(k))
    padded = F.pad(visible, (0, -len(k) % BLOCK, 0, -len(q) % BLOCK))
    tiles = padded.unflatten(3, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    return tiles.sum(dim=(3, 5), dtype=torch.int32)


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of marked blocks per row, and all columns, the marked ones first."""
    columns = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(dim=-1, dtype=torch.int32), columns.to(torch.int32)


def why_not(call: Call, *, compiled: bool = True) -> str | None:
    """Return why FlexAttention cannot compute this call; None if it can."""
    if call.mask is not None:
        return "FlexAttention takes patterns, not dense masks"
    if call.dropout:
        return "FlexAttention has no dropout"
    if 0 in call.scores[2:]:
        return "FlexAttention needs a query and a key"
    if call.q.device.type == "cpu" and call.wants_gradient:
        return "FlexAttention has no CPU backward"
    return why_not_on(call.q.device, compiled=compiled)


def why_not_on(device: torch.device, *, compiled: bool = True) -> str | None:
    """Return why FlexAttention is not available on this device; None if it is."""
    if torch_flex is None:
        return f"torch {torch.__version__} has no FlexAttention"
    if device.type not in ("cpu", "cuda", "xpu"):
        return f"FlexAttention has no kernel for {device.type}"
    return _no_compiler(device.type) if compiled else None


@torch.compiler.assume_constant_result
def _no_compiler(kind: str) -> str | None:
    """Return why torch.compile makes no FlexAttention kernel for this kind of device."""
    return _look_for_compiler(kind)


@lru_cache
def _look_for_compiler(kind: str) -> str | None:
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
    """Return a FlexAttention compiled for patterns of one kind.

    torch compiles a function for 8 shapes at most, for all callers together, so each kind gets a
    code object of its own. With `fullgraph` it raises beyond this limit, instead of running
    uncompiled.
    """
    plain = torch_flex.flex_attention
    code = plain.__code__.replace(co_name=f"flex_attention_{hash(kind) % 2**32:08x}")
    own = FunctionType(code, plain.__globals__, None, plain.__defaults__, plain.__closure__)
    own.__kwdefaults__ = plain.__kwdefaults__
    return torch.compile(own, fullgraph=True)


def by_flex(call: Call, *, compiled: bool = True) -> tuple[Tensor, Path]:
    """Compute the call by FlexAttention; within torch.compile it becomes part of the graph.

    Raises:
        PathRefused: it cannot compute this call, or torch.compile cannot build a kernel.
        torch.OutOfMemoryError: memory was insufficient.
    """
    name = "flex" if compiled else "flex_eager"
    reason = why_not(call, compiled=compiled)
    if reason is not None:
        raise PathRefused(name, reason)
    pattern, device = call.pattern, call.q.device
    traced = torch.compiler.is_compiling()
    mask = (block_mask if traced else block_masks.lookup)(pattern, call.scores, device)
    tensors = (call.q, call.k, call.v)
    if not call.wants_gradient:  # it checks the inputs, not the gradient mode
        tensors = tuple(x.detach() for x in tensors)
    arguments = (*tensors, pattern.score_mod(device), mask, call.scale, call.grouped)
    path = Path(name, "no mask" if mask is None else "block mask")
    if traced or not compiled:
        return torch_flex.flex_attention(*arguments), path
    try:
        return _kernel(pattern.kind)(*arguments), path
    except Exception as error:  # of whatever type the compiler of this torch raises
        if (shortage := _shortage(error)) is not None:
            raise shortage from None
        first = (str(error).splitlines() or [""])[0]
        raise PathRefused(name, f"{type(error).__name__}: {first}") from error


def _shortage(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """Return the out-of-memory error among an error and its causes, or None."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__cause__ or error.__context__
    return error

"""Self-attention layers (x [B, S, d] -> [B, S, d]) and their creation by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchbridge.attention.attend import attend, prepare
from torchbridge.attention.call import PathRefused
from torchbridge.attention.flex import block_masks, why_not_on
from torchbridge.attention.patterns import (
    FULL,
    PATTERNS,
    ALiBi,
    Causal,
    CausalSlidingWindow,
    Pattern,
    SlidingWindow,
    create_pattern,
)
from torchbridge.attention.sdpa import by_matrices

KeysAndValues = tuple[Tensor, Tensor]


class MultiHeadAttention(nn.Module):
    """Self-attention with `num_heads` heads under a pattern.

    `path_taken` is how the last call was computed; `fallback` is why it was not computed by the
    preferred path, or None.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        pattern: Pattern = FULL,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        path: str = "auto",
    ) -> None:
        """Create the layer; `num_kv_heads` (default `num_heads`) key heads serve all query heads.

        `path` is that of `attend`.
        """
        super().__init__()
        shared = num_heads if num_kv_heads is None else num_kv_heads
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if num_heads % shared:
            raise ValueError(f"num_heads {num_heads} is not divisible by num_kv_heads {shared}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_kv_heads = shared
        self.head_dim = embed_dim // num_heads
        self.pattern = pattern
        self.dropout = dropout
        self.path = path
        self.qkv = nn.Linear(embed_dim, (num_heads + 2 * shared) * self.head_dim, bias=bias)
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.path_taken: str | None = None
        self.fallback: str | None = None

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        return_weights: bool = False,
        *,
        past: KeysAndValues | None = None,
        use_cache: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, KeysAndValues]:
        """Return output [B, S, d], (output, weights [B, H, S, K]) or (output, (keys, values)).

        attention_mask: bool (True: visible) or a float bias, broadcastable to [B, H, S, K] ([B, S,
        K] too); a padding mask is [B, 1, 1, K]. Weights are those before dropout. past: keys and
        values [B, G, P, D] that an earlier call with `use_cache` returned; x follows them.
        """
        if return_weights and use_cache:
            raise ValueError("ask for the weights or for the cache, not for both")
        q, k, v = self._heads(x)
        offset = 0
        if past is not None:
            offset = past[0].shape[2]
            k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v), strict=True))
        if attention_mask is not None and attention_mask.dim() == 3:
            attention_mask = attention_mask.unsqueeze(1)
        heads, weights = self._attend(q, k, v, attention_mask, offset, return_weights)
        output = self.out(heads.transpose(1, 2).flatten(2))
        if return_weights:
            return output, weights
        return (output, (k, v)) if use_cache else output

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x to q [B, H, S, D], and to k and v [B, G, S, D]."""
        if x.dim() != 3 or x.shape[-1] != self.embed_dim:
            raise ValueError(
                f"x must be [batch, positions, {self.embed_dim}], got {tuple(x.shape)}"
            )
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, offset: int, weighed: bool
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout if self.training else 0.0
        options = {"pattern": self.pattern, "mask": mask, "q_offset": offset, "dropout": dropout}
        weights = None
        if not weighed:
            output, taken = attend(q, k, v, path=self.path, **options)
        elif self.path in ("auto", "explicit"):
            output, weights, taken = by_matrices(prepare(q, k, v, **options))
        else:
            raise PathRefused(self.path, "it has no weights to return")
        self.path_taken, self.fallback = str(taken), taken.fallback
        return output, weights

    def extra_repr(self) -> str:
        """Return the constructor's arguments as text."""
        return (
            f"{self.embed_dim}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, "
            f"pattern={self.pattern.name}, dropout={self.dropout}, path={self.path}"
        )


class FlashAttention3(MultiHeadAttention):
    """Attention by SDPA's best kernel.

    That is FlashAttention-3 where torch was switched to it
    (`torch.nn.attention.activate_flash_attention_impl`).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        causal: bool = False,
        bias: bool = True,
        *,
        path: str = "auto",
    ) -> None:
        pattern = Causal() if causal else FULL
        options = {"dropout": dropout, "bias": bias, "path": path}
        super().__init__(embed_dim, num_heads, pattern=pattern, **options)
        self.causal = causal


class FlexAttentionLayer(MultiHeadAttention):
    """Attention under a pattern; block masks and kernels are shared by all layers."""

    def __init__(self, embed_dim: int, num_heads: int, **options) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.calls = 0

    def forward(self, *arguments, **options):
        """Compute attention as `MultiHeadAttention.forward`, and count the call."""
        if not torch.compiler.is_compiling():  # a changing number would cause recompilation
            self.calls += 1
        return super().forward(*arguments, **options)

    def get_stats(self) -> dict[str, object]:
        """Return the layer's settings and the number and path of its uncompiled calls.

        `block_masks` counts the masks cached for all layers.
        """
        return {
            "pattern": self.pattern.name,
            "embed_dim": self.embed_dim,
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "calls": self.calls,
            "path_taken": self.path_taken,
            "fallback": self.fallback,
            "block_masks": len(block_masks),
        }

    def clear_cache(self) -> None:
        """Remove the block masks of all layers."""
        block_masks.clear()


class FlexAttentionCausal(FlexAttentionLayer):
    """Attention to the position itself and earlier ones."""

    def __init__(self, embed_dim: int, num_heads: int, **options) -> None:
        super().__init__(embed_dim, num_heads, pattern=Causal(), **options)


class FlexAttentionSlidingWindow(FlexAttentionLayer):
    """Attention to positions less than `window` away; with `causal` not to later ones."""

    def __init__(
        self, embed_dim: int, num_heads: int, *, window: int, causal: bool = False, **options
    ) -> None:
        pattern = CausalSlidingWindow(window) if causal else SlidingWindow(window)
        super().__init__(embed_dim, num_heads, pattern=pattern, **options)


class FlexAttentionALiBi(FlexAttentionLayer):
    """Attention with ALiBi biases, by default causal."""

    def __init__(self, embed_dim: int, num_heads: int, *, causal: bool = True, **options) -> None:
        slopes = ALiBi(num_heads)
        super().__init__(
            embed_dim, num_heads, pattern=slopes & Causal() if causal else slopes, **options
        )


class FlashAttentionV3(nn.Module):
    """Attention without projections: q, k, v [B, H, S, D] -> [B, H, S, D]."""

    def __init__(
        self,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
        *,
        path: str = "auto",
    ) -> None:
        super().__init__()
        self.causal = causal
        self.dropout = dropout
        self.scale = scale
        self.path = path
        self.path_taken: str | None = None
        self.fallback: str | None = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute `attend` with the module's settings; ValueError if shapes do not fit."""
        output, taken = attend(
            q,
            k,
            v,
            pattern=Causal() if self.causal else FULL,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            path=self.path,
        )
        self.path_taken, self.fallback = str(taken), taken.fallback
        return output

    def extra_repr(self) -> str:
        """Return the constructor's arguments as text."""
        scale = "1/sqrt(head_dim)" if self.scale is None else self.scale
        return f"causal={self.causal}, dropout={self.dropout}, scale={scale}, path={self.path}"


REGISTRY: dict[str, type[MultiHeadAttention]] = {
    "multi_head": MultiHeadAttention,
    "flash_attention_3": FlashAttention3,
    "flex": FlexAttentionLayer,
    "flex_causal": FlexAttentionCausal,
    "flex_sliding_window": FlexAttentionSlidingWindow,
    "flex_alibi": FlexAttentionALiBi,
}


def create_attention(name: str, embed_dim: int, num_heads: int, **options) -> MultiHeadAttention:
    """Create a layer of a kind in `REGISTRY`; options go to its constructor.

    Raises:
        ValueError: the kind is unknown.
    """
    if name not in REGISTRY:
        raise ValueError(f"attention must be one of {', '.join(REGISTRY)}, got {name!r}")
    return REGISTRY[name](embed_dim, num_heads, **options)


def create_flex_attention(
    pattern: str,
    embed_dim: int,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    dropout: float = 0.0,
    bias: bool = True,
    path: str = "auto",
    **pattern_options,
) -> FlexAttentionLayer:
    """Create a layer with the pattern of this name in `PATTERNS`, built with `pattern_options`.

    Raises:
        ValueError: the pattern is unknown.
    """
    made = create_pattern(pattern, **pattern_options)
    options = {"num_kv_heads": num_kv_heads, "dropout": dropout, "bias": bias, "path": path}
    return FlexAttentionLayer(embed_dim, num_heads, pattern=made, **options)


def create_flash_attention_3(embed_dim: int, num_heads: int, **options) -> FlashAttention3:
    """Create a FlashAttention3; options go to its constructor."""
    return FlashAttention3(embed_dim, num_heads, **options)


def create_flash_attention_v3(**options) -> FlashAttentionV3:
    """Create a FlashAttentionV3; options go to its constructor."""
    return FlashAttentionV3(**options)


def get_flex_info(device: torch.device) -> dict[str, object]:
    """Describe FlexAttention on `device`; `reason` says why it is unavailable, or None."""
    reason = why_not_on(device)
    return {
        "available": reason is None,
        "reason": reason,
        "device": str(device),
        "patterns": list(PATTERNS),
        "block_masks": len(block_masks),
    }

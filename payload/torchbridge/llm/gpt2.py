"""GPT-2: token and position embeddings, L blocks, and a head that shares the token embedding.

Shapes: B sequences, T tokens, d width, H heads of D = d / H, V vocabulary, S slots of a cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.llm.cache import KVCache

# (keys, values) [B, H, T, D] of the new tokens -> those to attend to, and which of them; no mask
# stands for causal attention among the new tokens, or for all keys where there is one token
Extend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPT2Config:
    """Sizes of a model, validated at construction; the defaults are the 124M model's."""

    vocabulary: int = 50257
    positions: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    dropout: float = 0.1
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocabulary", "positions", "layers", "heads", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by heads {self.heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    @property
    def parameters(self) -> int:
        """Number of parameters of a model of these sizes; the head adds none."""
        d = self.width
        block = 4 * d * d + 4 * d + 8 * d * d + 5 * d + 4 * d  # attention, feed-forward, two norms
        return (self.vocabulary + self.positions) * d + self.layers * block + 2 * d


class TokenTable(nn.Module):
    """Token embedding [V, d] that is also the output head."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids [B, T] to features [B, T, d]."""
        return F.embedding(ids, self.weight)

    def logits(self, features: Tensor) -> Tensor:
        """Map features [..., d] to logits [..., V]."""
        return F.linear(features, self.weight)


class Attention(nn.Module):
    """Causal self-attention with H heads."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, extend: Extend | None = None) -> Tensor:
        """Map [B, T, d] to [B, T, d]; `extend` adds the keys and values of earlier tokens."""
        batch, tokens, width = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        mask = None
        if extend is not None:
            keys, values, mask = extend(keys, values)
        # decided here: a length that a compiler leaves open compares to a symbol, not to a bool
        causal = True if mask is None and tokens > 1 else False  # noqa: SIM210
        attended = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            is_causal=causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(attended.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """Attention and a feed-forward layer of width 4d, both with pre-normalisation and residual."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.layer_norm_epsilon)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=config.layer_norm_epsilon)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, extend: Extend | None = None) -> Tensor:
        """Map [B, T, d] to [B, T, d]."""
        x = x + self.dropout(self.attention(self.norm1(x), extend))
        hidden = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.down(hidden))


class GPT2(nn.Module):
    """GPT-2 language model; with a `KVCache`, ids follow its tokens and are added to it."""

    def __init__(self, config: GPT2Config | None = None, generator: torch.Generator | None = None):
        """Initialise random weights as GPT-2 does, with a CPU `generator` if given."""
        super().__init__()
        self.config = config = config or GPT2Config()
        self.tokens = TokenTable(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.layer_norm_epsilon)
        self._initialise(generator)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator | None) -> None:
        # what is added to the residual stream 2L times is drawn narrower, so that its sum is not
        narrow = 0.02 / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.dim() == 2:
                std = narrow if name.endswith(("out.weight", "down.weight")) else 0.02
                parameter.normal_(0.0, std, generator=generator)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.positions.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        return self.positions.weight.dtype

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Map ids [B, T] to logits [B, T, V].

        Raises:
            ValueError: the tokens exceed the positions or the cache.
        """
        return self.tokens.logits(self.features(ids, cache))

    def features(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Map ids [B, T] to the head's input [B, T, d]; raises as `forward`."""
        batch, tokens = ids.shape
        start = 0 if cache is None else cache.room_for(batch, tokens)
        if start + tokens > self.config.positions:
            raise ValueError(
                f"{start + tokens} tokens are more than the model's {self.config.positions} "
                "positions: shorten the prompt or start a new cache"
            )
        places = torch.arange(start, start + tokens, device=ids.device)
        if cache is None:
            return self._run(ids, places, [None] * len(self.blocks))
        extends = [partial(cache.append, layer, start) for layer in range(len(self.blocks))]
        output = self._run(ids, places, extends)
        cache.length = start + tokens
        return output

    def step(self, ids: Tensor, place: Tensor, cache: KVCache, bucket: int | None = None) -> Tensor:
        """Decode one token per sequence: ids [B, 1] at `place` [1] int64 -> logits [B, 1, V].

        It attends to the first `bucket` slots (default all), with those beyond `place` masked, so
        no shape depends on the cache's length and it compiles once per bucket. The caller ensures
        that `place` is inside the bucket and updates `cache.length`.
        """
        mask = cache.seen(place, bucket or cache.capacity)
        extends = [partial(cache.write, layer, place, mask) for layer in range(len(self.blocks))]
        return self.tokens.logits(self._run(ids, place, extends))

    def _run(self, ids: Tensor, places: Tensor, extends: Iterable[Extend | None]) -> Tensor:
        x = self.dropout(self.tokens(ids) + self.positions(places))
        for block, extend in zip(self.blocks, extends, strict=True):
            x = block(x, extend)
        return self.norm(x)

"""Static KV cache: keys and values of past tokens, in memory that is allocated once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchbridge.llm.gpt2 import GPT2

SMALLEST = 128  # minimum slots of a compiled step: fewer would not be faster


class KVCache:
    """Keys and values, [B, H, S, D] per layer; the first `length` of S slots are filled.

    There is one tensor per layer, because torch's compiler would copy a joint tensor for each
    token. Slots beyond `length` are masked, that is multiplied by 0; `reset` zeroes them, because
    NaN would survive the product.
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int, int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate `shape` = (L, B, H, S, D)."""
        layers, *sizes = shape
        both = [torch.zeros(sizes, dtype=dtype, device=device) for _ in range(2 * layers)]
        self.keys, self.values = both[:layers], both[layers:]
        self.length = 0

    @classmethod
    def for_model(cls, model: GPT2, batch: int, capacity: int) -> KVCache:
        """Allocate for `batch` sequences of up to `capacity` tokens of this model.

        Raises:
            ValueError: the capacity is not in 1..positions.
        """
        config = model.config
        if not 1 <= capacity <= config.positions:
            raise ValueError(
                f"capacity must be in 1..{config.positions} (the model's positions), got {capacity}"
            )
        shape = (config.layers, batch, config.heads, capacity, config.width // config.heads)
        return cls(shape, dtype=model.dtype, device=model.device)

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return self.keys[0].shape[0]

    @property
    def capacity(self) -> int:
        """Maximum number of tokens per sequence."""
        return self.keys[0].shape[2]

    @property
    def device(self) -> torch.device:
        """Device of the cache."""
        return self.keys[0].device

    @property
    def nbytes(self) -> int:
        """Bytes of the storages."""
        return sum(one.untyped_storage().nbytes() for one in self.keys + self.values)

    def reset(self) -> None:
        """Drop all tokens and zero the memory in place."""
        self.length = 0
        for one in self.keys + self.values:
            one.zero_()

    def room_for(self, batch: int, tokens: int) -> int:
        """Return the position of the first of `tokens` further tokens.

        Raises:
            ValueError: the batch size differs, or the capacity is exceeded.
        """
        if batch != self.batch:
            raise ValueError(f"the cache is for {self.batch} sequences, got {batch}")
        if self.length + tokens > self.capacity:
            raise ValueError(
                f"the cache has room for {self.capacity} tokens and holds {self.length}: "
                f"{tokens} more do not fit; make a larger one or reset it"
            )
        return self.length

    def append(
        self, layer: int, start: int, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Store [B, H, T, D] at `start`; return keys, values up to there, and mask [T, start
        + T] or None.

        No mask is needed by the first tokens, which are causal among themselves, nor by a single
        one.
        """
        tokens = keys.shape[2]
        end = start + tokens
        all_keys, all_values = self.keys[layer], self.values[layer]
        all_keys[:, :, start:end] = keys
        all_values[:, :, start:end] = values
        mask = None
        if start > 0 and tokens > 1:
            mask = torch.ones(tokens, end, dtype=torch.bool, device=keys.device).tril(start)
        return all_keys[:, :, :end], all_values[:, :, :end], mask

    @property
    def buckets(self) -> tuple[int, ...]:
        """Slot counts that a step of fixed shape may attend to: 128, doubled up to the capacity."""
        sizes = [SMALLEST]
        while sizes[-1] < self.capacity:
            sizes.append(2 * sizes[-1])
        return (*sizes[:-1], self.capacity)

    def bucket(self, tokens: int) -> int:
        """Return the smallest bucket that holds `tokens`, which is from 1 to the capacity."""
        return next(size for size in self.buckets if size >= tokens)

    def seen(self, place: Tensor, bucket: int) -> Tensor:
        """Return the attention bias [1, bucket]: 0 for slots up to `place` [1], -inf beyond."""
        slots = torch.arange(bucket, device=place.device)
        hidden = torch.full((1, bucket), -math.inf, dtype=self.keys[0].dtype, device=place.device)
        return hidden.masked_fill(slots <= place[:, None], 0.0)

    def write(
        self, layer: int, place: Tensor, mask: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Store [B, H, 1, D] at `place` [1]; return keys, values and mask of `mask`'s slots."""
        bucket = mask.shape[-1]
        all_keys = self.keys[layer].index_copy_(2, place, keys)
        all_values = self.values[layer].index_copy_(2, place, values)
        return all_keys[:, :, :bucket], all_values[:, :, :bucket], mask

"""Decode steps of fixed shape: compiled, or captured as CUDA graphs that also choose the token.

Both attend to the smallest bucket of slots that holds the text so far, not to the whole cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from torchbridge.device import synchronise
from torchbridge.graphs import CudaGraphs, Graphs, Replay, why_no_graphs
from torchbridge.llm.cache import KVCache
from torchbridge.llm.generate import next_token
from torchbridge.llm.gpt2 import GPT2

Step = Callable[[Tensor, Tensor, KVCache, int], Tensor]  # GPT2.step, as it is or compiled


def compile_step(model: GPT2, backend: str | Callable, *, graphs: bool = False) -> Step:
    """Compile `model.step` with one shape per bucket; `graphs` uses torch's CUDA graphs.

    On CUDA, the compiler also tunes the tiles of reductions, and computes products of a single row
    as reductions, which it can fuse.
    """
    options = None
    if backend == "inductor" and model.device.type == "cuda":
        options = {"coordinate_descent_tuning": True, "triton.cudagraphs": graphs}
    return torch.compile(
        model.step, backend=backend, options=options, fullgraph=True, dynamic=False
    )


class CompiledDecode:
    """A model's compiled decode step, one graph per bucket; CUDA graphs on CUDA."""

    def __init__(self, model: GPT2, backend: str | Callable = "inductor") -> None:
        graphs = backend == "inductor" and model.device.type == "cuda"
        self.model = model
        self.path_taken, self._graphs = f"compiled ({backend})", graphs
        self._step = compile_step(model, backend, graphs=graphs)

    def __call__(self, ids: Tensor, cache: KVCache) -> Tensor:
        """Map ids [B, 1] to logits [B, 1, V]; raise ValueError if the cache is full."""
        start = cache.room_for(*ids.shape)
        place = torch.full((1,), start, dtype=torch.int64, device=ids.device)
        torch.compiler.cudagraph_mark_step_begin()
        logits = self._step(ids, place, cache, cache.bucket(start + 1))
        cache.length = start + 1
        return logits

    @torch.no_grad()
    def compile(self, cache: KVCache) -> float:
        """Compile for all buckets of this cache, reset it, and return the seconds taken."""
        start = time.perf_counter()
        _keep_address(cache)
        if self._graphs:  # torch takes them only where the cache stays where it is
            self.path_taken = self.path_taken.replace(")", ", CUDA graphs)")
        ids = torch.zeros(cache.batch, 1, dtype=torch.int64, device=cache.device)
        for bucket in cache.buckets:
            for _ in range(2):  # the second call proves that one was enough
                cache.length = bucket - 1
                self(ids, cache)
        synchronise(cache.device)
        cache.reset()
        return time.perf_counter() - start


class GraphedDecode:
    """A model's decode step as CUDA graphs, one per bucket, including the greedy token choice.

    The graphs write the memory of one cache. N greedy tokens are N replays: token and position stay
    on the device, without synchronisation. `backend` compiles the captured step ("inductor"); None
    captures the eager step. `seconds` is the duration of compilation and capture.

    Raises:
        RuntimeError: the device has no CUDA graphs.
    """

    def __init__(
        self,
        model: GPT2,
        cache: KVCache,
        *,
        backend: str | Callable | None = None,
        graphs: Graphs | None = None,
    ) -> None:
        """Capture all graphs and reset the cache; tests pass `graphs` that need no device."""
        if graphs is None and (reason := why_no_graphs(cache.device)):
            raise RuntimeError(reason)
        self.model, self.cache = model, cache
        self.path_taken = f"CUDA graphs ({backend or 'eager'}, {len(cache.buckets)} of them)"
        self._step: Step = compile_step(model, backend) if backend else model.step
        self._graphs = graphs or CudaGraphs(cache.device)
        self._replays: dict[int, Replay] = {}
        device, batch = cache.device, cache.batch
        self._ids = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._tokens = torch.zeros(batch, cache.capacity + 1, dtype=torch.int64, device=device)
        size = (batch, 1, model.config.vocabulary)
        self._logits = torch.zeros(size, dtype=cache.keys[0].dtype, device=device)
        self.seconds = self._capture()

    @torch.no_grad()
    def _capture(self) -> float:
        start = time.perf_counter()
        for bucket in self.cache.buckets:
            with self._graphs.aside():
                for _ in range(2):
                    self._place.zero_()
                    self._advance(bucket)
            self._place.zero_()
            self._replays[bucket], _ = self._graphs.record(partial(self._advance, bucket))
        synchronise(self.cache.device)
        self.cache.reset()
        return time.perf_counter() - start

    @torch.no_grad()
    def __call__(self, ids: Tensor, cache: KVCache) -> Tensor:
        """Map ids [B, 1] to logits [B, 1, V], which the next call overwrites.

        Raises:
            ValueError: the cache is full, or is not the captured one.
        """
        self._replay(ids, cache, 1)
        return self._logits

    @torch.no_grad()
    def greedy(self, token: Tensor, cache: KVCache, count: int) -> Tensor:
        """Return the `count` most likely tokens [B, count] after `token` [B]; raises as a call."""
        start = self._replay(token[:, None], cache, count)
        return self._tokens[:, start + 1 : start + 1 + count].clone()

    def _replay(self, ids: Tensor, cache: KVCache, count: int) -> int:
        """Feed ids [B, 1] and the tokens that follow; return the position of the first."""
        if cache is not self.cache:
            raise ValueError("the graphs write another cache: give the one they were captured for")
        start = cache.room_for(ids.shape[0], count)
        self._ids.copy_(ids)
        self._place.fill_(start)
        for place in range(start, start + count):
            self._replays[cache.bucket(place + 1)]()
        cache.length = start + count
        return start

    def _advance(self, bucket: int) -> None:
        """Run one step for capture; it only uses tensors whose addresses do not change."""
        logits = self._step(self._ids, self._place, self.cache, bucket)
        self._logits.copy_(logits)
        self._ids.copy_(next_token(logits[:, -1])[:, None])
        self._place.add_(1)
        self._tokens.index_copy_(1, self._place, self._ids)


def _keep_address(cache: KVCache) -> None:
    """Mark the cache's addresses as fixed, so that the compiler's CUDA graphs may write to it."""
    mark = getattr(getattr(torch, "_dynamo", None), "mark_static_address", None)
    if mark is not None and cache.device.type == "cuda":
        for one in cache.keys + cache.values:
            mark(one)

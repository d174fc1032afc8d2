"""Decode steps of a fixed shape: compiled, or captured as CUDA graphs that also choose the token.

Both attend to the first bucket of slots that holds the text so far, rather than to a whole cache.
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
    """`model.step` under torch.compile, one shape per bucket; `graphs`: as CUDA graphs of torch's.

    For CUDA the compiler also searches each reduction's best tiles, and writes products of a single
    row as reductions, which it can fuse with what is around them.
    """
    options = None
    if backend == "inductor" and model.device.type == "cuda":
        options = {"coordinate_descent_tuning": True, "triton.cudagraphs": graphs}
    return torch.compile(
        model.step, backend=backend, options=options, fullgraph=True, dynamic=False
    )


class CompiledDecode:
    """A model's step under torch.compile, as CUDA graphs on CUDA; compiled once per bucket."""

    def __init__(self, model: GPT2, backend: str | Callable = "inductor") -> None:
        graphs = backend == "inductor" and model.device.type == "cuda"
        self.model = model
        self.path_taken, self._graphs = f"compiled ({backend})", graphs
        self._step = compile_step(model, backend, graphs=graphs)

    def __call__(self, ids: Tensor, cache: KVCache) -> Tensor:
        """ids [B, 1] -> logits [B, 1, V]; raises ValueError if the cache is full."""
        start = cache.room_for(*ids.shape)
        place = torch.full((1,), start, dtype=torch.int64, device=ids.device)
        torch.compiler.cudagraph_mark_step_begin()
        logits = self._step(ids, place, cache, cache.bucket(start + 1))
        cache.length = start + 1
        return logits

    @torch.no_grad()
    def compile(self, cache: KVCache) -> float:
        """Compile for all buckets of this cache, which is empty after; seconds it took."""
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
    """A model's step as CUDA graphs, one per bucket, with the choice of the likeliest token inside.

    For one cache, whose memory the graphs write. N greedy tokens are N replays: the token is fed
    back, its place counted and kept on the device, and the host asks it nothing. `backend` compiles
    what is captured ("inductor"), None captures the eager step. `seconds` is what both took.

    Raises:
        RuntimeError: a device without CUDA graphs.
    """

    def __init__(
        self,
        model: GPT2,
        cache: KVCache,
        *,
        backend: str | Callable | None = None,
        graphs: Graphs | None = None,
    ) -> None:
        """Capture all graphs; the cache is empty after.

        `graphs` stands in for CUDA's, to try the rest without a device.
        """
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
        """ids [B, 1] -> logits [B, 1, V], which the next call overwrites.

        Raises:
            ValueError: the cache is full, or is not the one that was captured.
        """
        self._replay(ids, cache, 1)
        return self._logits

    @torch.no_grad()
    def greedy(self, token: Tensor, cache: KVCache, count: int) -> Tensor:
        """The `count` likeliest tokens [B, count] after `token` [B]; raises as a call does."""
        start = self._replay(token[:, None], cache, count)
        return self._tokens[:, start + 1 : start + 1 + count].clone()

    def _replay(self, ids: Tensor, cache: KVCache, count: int) -> int:
        """Feed ids [B, 1], then the tokens that follow from it; the place of the first."""
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
        """What is captured: it touches nothing but tensors that stay where they are."""
        logits = self._step(self._ids, self._place, self.cache, bucket)
        self._logits.copy_(logits)
        self._ids.copy_(next_token(logits[:, -1])[:, None])
        self._place.add_(1)
        self._tokens.index_copy_(1, self._place, self._ids)


def _keep_address(cache: KVCache) -> None:
    """Tell the compiler that the cache stays where it is: only then may a CUDA graph write it."""
    mark = getattr(getattr(torch, "_dynamo", None), "mark_static_address", None)
    if mark is not None and cache.device.type == "cuda":
        for one in cache.keys + cache.values:
            mark(one)

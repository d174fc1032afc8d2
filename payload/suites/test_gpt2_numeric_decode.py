"""Decode steps of a fixed shape: buckets, graphs that choose the token, stop tokens."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import pytest
import torch

from suites import gpt2_reference as ref
from suites.gpt2_reference import SMALL, lively, prompts
from suites.numerics import assert_close, needs_cuda
from suites.operators import READ, Operators
from suites.recorded_graphs import RepeatedGraphs, TapeGraphs
from torchbridge.llm import (
    GPT2,
    CompiledDecode,
    GraphedDecode,
    KVCache,
    Sampling,
    generate,
)

LOOK_AFTER = vars(import_module("torchbridge.llm.generate"))["_LOOK_AFTER"]
LONG = dataclasses.replace(SMALL, layers=2, positions=300)


def graphed(model: GPT2, batch: int, capacity: int) -> tuple[GraphedDecode, TapeGraphs]:
    """Return a decode whose graphs are fakes on any device, and the fakes."""
    graphs = TapeGraphs()
    return GraphedDecode(model, KVCache.for_model(model, batch, capacity), graphs=graphs), graphs


class TestBuckets:
    @pytest.mark.parametrize(
        ("capacity", "buckets"),
        [
            (1, (1,)),
            (127, (127,)),
            (128, (128,)),
            (129, (128, 129)),
            (300, (128, 256, 300)),
            (1024, (128, 256, 512, 1024)),
        ],
    )
    def test_double_up_to_the_capacity(self, capacity, buckets):
        cache = KVCache((1, 1, 1, capacity, 2))
        assert cache.buckets == buckets
        for tokens in range(1, capacity + 1):
            least = next(size for size in buckets if size >= tokens)
            assert cache.bucket(tokens) == least

    @torch.no_grad()
    @pytest.mark.parametrize("length", [1, 60, 126, 127, 128, 255, 256, 299])
    def test_a_step_is_exact_at_every_fill(self, device, length):
        model = lively(LONG).to(device)
        cache = KVCache.for_model(model, 2, 300)
        for one in cache.keys + cache.values:
            one.fill_(1e4)  # numbers of an earlier text
        ids = prompts(2, length + 1, device, LONG)
        model(ids[:, :-1], cache)
        place = torch.tensor([length], device=device)
        logits = model.step(ids[:, -1:], place, cache, cache.bucket(length + 1))
        assert_close(logits, ref.logits(model, ids)[:, -1:])
        assert cache.length == length  # the caller counts

    @torch.no_grad()
    def test_attends_to_the_bucket_alone(self, device):
        model = lively(LONG).to(device)
        cache = KVCache.for_model(model, 1, 300)
        ids = prompts(1, 100, device, LONG)
        model(ids[:, :-1], cache)
        for one in cache.keys + cache.values:
            one[:, :, 128:] = torch.nan  # a masked NaN would still have an effect
        logits = model.step(ids[:, -1:], torch.tensor([99], device=device), cache, 128)
        assert_close(logits, ref.logits(model, ids)[:, -1:])

    def test_compiles_once_per_bucket(self, device):
        torch.compiler.reset()
        model, graphs = lively(LONG).to(device), []

        def count(graph, inputs):
            graphs.append(graph)
            return graph.forward

        decode, cache = CompiledDecode(model, backend=count), KVCache.for_model(model, 1, 300)
        decode.compile(cache)
        assert len(graphs) == 3
        ids = prompts(1, 100, device, LONG)
        tokens = generate(model, ids, 40, cache=cache, decode=decode)  # beyond the first bucket
        assert torch.equal(tokens, generate(model, ids, 40))
        assert len(graphs) == 3


class TestGraphs:
    @pytest.mark.parametrize("batch", [1, 3])
    @pytest.mark.parametrize("prompt", [1, 7, 30])
    def test_tokens_are_those_of_eager(self, device, model, batch, prompt):
        decode, graphs = graphed(model, batch, 50)
        for _ in range(2):  # the second text reuses the cache
            ids = prompts(batch, prompt, device)
            tokens = generate(model, ids, 20, cache=decode.cache, decode=decode)
            assert torch.equal(tokens.cpu(), ref.greedy(model, ids, 20))
        assert graphs.replayed == [0] * 2 * 19  # the first token is the prefill's

    def test_takes_the_bucket_of_the_text_so_far(self, device):
        model = lively(LONG).to(device)
        decode, graphs = graphed(model, 2, 300)
        ids = prompts(2, 120, device, LONG)
        tokens = generate(model, ids, 150, cache=decode.cache, decode=decode)
        assert torch.equal(tokens, generate(model, ids, 150))
        # 120 are fed by the prefill; 8 more fill the first bucket, 128 the second
        assert graphs.replayed == [0] * 8 + [1] * 128 + [2] * 13
        assert decode.path_taken == "CUDA graphs (eager, 3 of them)"

    @torch.no_grad()
    def test_a_call_gives_the_logits(self, device, model):
        decode, _ = graphed(model, 2, 30)
        ids = prompts(2, 12, device)
        model(ids[:, :10], decode.cache)
        for end in (11, 12):
            logits = decode(ids[:, end - 1 : end], decode.cache)
            assert_close(logits, ref.logits(model, ids[:, :end])[:, -1:])
            assert decode.cache.length == end

    def test_drawn_tokens_are_those_of_eager(self, device, model):
        decode, graphs = graphed(model, 2, 40)
        ids, hot = prompts(2, 5, device), Sampling(temperature=1.5, top_k=30)
        texts = [
            generate(
                model,
                ids,
                20,
                sampling=hot,
                generator=torch.Generator(device).manual_seed(5),
                cache=decode.cache if one else None,
                decode=one,
            )
            for one in (None, decode)
        ]
        assert torch.equal(*texts)
        assert len(graphs.replayed) == 19

    def test_compiled_before_it_is_captured(self, device):
        torch.compiler.reset()
        model = lively(dataclasses.replace(SMALL, layers=1)).to(device)
        cache = KVCache.for_model(model, 1, 30)
        decode = GraphedDecode(model, cache, backend="aot_eager", graphs=RepeatedGraphs())
        assert decode.path_taken == "CUDA graphs (aot_eager, 1 of them)"
        assert (decode.seconds > 0, cache.length) == (True, 0)
        ids = prompts(1, 8, device)
        tokens = generate(model, ids, 15, cache=cache, decode=decode)
        assert torch.equal(tokens.cpu(), ref.greedy(model, ids, 15))

    @torch.no_grad()
    def test_what_is_refused(self, device, model):
        decode, graphs = graphed(model, 1, 8)
        model(prompts(1, 6, device), decode.cache)
        with pytest.raises(ValueError, match="3 more do not fit"):
            decode.greedy(prompts(1, 1, device)[0], decode.cache, 3)
        with pytest.raises(ValueError, match="write another cache"):
            decode(prompts(1, 1, device), KVCache.for_model(model, 1, 8))
        assert (graphs.replayed, decode.cache.length) == ([], 6)
        with pytest.raises(RuntimeError, match="needs a CUDA device, not meta"):
            GraphedDecode(model, KVCache((1, 1, 1, 4, 2), device="meta"))

    def test_the_recording_is_no_run(self):
        """The fake repeats operators on memory, not Python's computations, and reads no number."""
        number, memory, result = 1.0, torch.ones(2), torch.zeros(2)

        def work() -> None:
            result.copy_(memory * 2 + number)

        replay, _ = TapeGraphs().record(work)
        number = 100.0
        memory.fill_(5.0)
        replay()
        assert result.tolist() == [11.0, 11.0]
        with pytest.raises(RuntimeError, match="asks the host"):
            TapeGraphs().record(lambda: memory.sum().item())

    @needs_cuda()
    @pytest.mark.parametrize("backend", [None, "inductor"])
    def test_on_cuda(self, device, backend):
        model = lively(LONG).to(device)
        cache = KVCache.for_model(model, 2, 300)
        decode = GraphedDecode(model, cache, backend=backend)
        for prompt in (5, 120):
            ids = prompts(2, prompt, device, LONG)
            tokens = generate(model, ids, 150, cache=cache, decode=decode)
            assert torch.equal(tokens.cpu(), ref.greedy(model, ids, 150))


class TestStop:
    def expected(self, tokens: torch.Tensor, prompt: int, stop: int) -> torch.Tensor:
        """Return the expected ids, row by row: the first stop token fills the rest of its row."""
        rows = []
        for row in tokens.tolist():
            new = row[prompt:]
            if stop in new:
                said = new[: new.index(stop) + 1]
                new = said + [stop] * (len(new) - len(said))
            rows.append(row[:prompt] + new)
        return torch.tensor(rows)

    @pytest.mark.parametrize("look_after", [1, 3, 16, 100])
    def test_nothing_but_stops_after_the_first(self, device, monkeypatch, look_after):
        monkeypatch.setitem(LOOK_AFTER, device.type, look_after)
        model = lively().to(device)
        ids = prompts(3, 6, device)
        tokens = generate(model, ids, 30)
        for stop in {*tokens[0, 6:].tolist(), 96}:
            text = generate(model, ids, 30, stop_token=stop)
            assert torch.equal(text.cpu(), self.expected(tokens, 6, stop))

    def test_ends_when_all_have_ended(self, device, monkeypatch):
        monkeypatch.setitem(LOOK_AFTER, device.type, 4)
        model = lively().to(device)
        ids = prompts(1, 6, device)
        tokens = generate(model, ids, 40)[0, 6:].tolist()
        stop = tokens[10]
        first = tokens.index(stop)
        calls = []

        def decode(one: torch.Tensor, cache: KVCache) -> torch.Tensor:
            calls.append(1)
            return model(one, cache)

        text = generate(model, ids, 40, decode=decode, stop_token=stop)
        assert text.shape == (1, 46)
        assert len(calls) == -(-first // 4) * 4  # whole groups of 4 tokens

    def test_a_device_is_asked_after_every_sixteenth_token(self, monkeypatch):
        """The host reads a device's tokens after every sixteenth step.

        The CPU without its own rule replaces the device.
        """
        monkeypatch.delitem(LOOK_AFTER, "cpu")
        model, cpu = lively(), torch.device("cpu")
        ids = prompts(1, 6, cpu)
        unused = next(t for t in range(97) if t not in generate(model, ids, 50)[:, 6:])
        with Operators() as operators:
            generate(model, ids, 50, stop_token=unused)
        assert operators.seen.count(READ) == 4  # 1, 17, 33 and 49 of 50

    def test_a_prompt_may_hold_it(self, device, model):
        ids = prompts(2, 6, device)
        unused = next(t for t in range(97) if t not in generate(model, ids, 12)[:, 6:])
        ids = ids.clone()
        stop = int(ids[0, 2])
        tokens = generate(model, ids, 12)
        text = generate(model, ids, 12, stop_token=stop)
        assert torch.equal(text.cpu(), self.expected(tokens, 6, stop))
        assert torch.equal(generate(model, ids, 12, stop_token=unused), tokens)
        assert torch.equal(generate(model, ids, 0, stop_token=stop), ids)

    def test_by_graphs(self, device, monkeypatch):
        monkeypatch.setitem(LOOK_AFTER, device.type, 5)
        model = lively().to(device)
        decode, _ = graphed(model, 2, 60)
        ids = prompts(2, 6, device)
        stop = int(generate(model, ids, 40)[0, 18])
        expected = generate(model, ids, 40, stop_token=stop)
        text = generate(model, ids, 40, cache=decode.cache, decode=decode, stop_token=stop)
        assert torch.equal(text, expected)

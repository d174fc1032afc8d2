"""The static cache gives the same tokens as no cache, for any prompt, split and reuse."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import re
import shutil

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.graph import GraphLowering

from suites import gpt2_reference as ref
from suites.gpt2_reference import SMALL, lively, prompts
from suites.numerics import assert_close
from torchbridge.llm import GPT2, CompiledDecode, KVCache, generate
from torchbridge.llm.decode import compile_step


def no_inductor(device: torch.device) -> str | None:
    """Return what torch.compile lacks on this device; None if it can generate code."""
    if device.type == "cpu":
        compilers = [os.environ.get("CXX"), "g++", "clang++"]
        found = any(name and shutil.which(name) for name in compilers)
        return None if found else "no C++ compiler (CXX, g++, clang++)"
    return None if importlib.util.find_spec("triton") else "triton not installed"


class TestCache:
    def reference(self, model: GPT2, ids: torch.Tensor, new_tokens: int) -> torch.Tensor:
        """Return greedy tokens of the model itself, in its own precision and without a cache."""
        for _ in range(new_tokens):
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(dim=-1)], dim=1)
        return ids

    @torch.no_grad()
    @pytest.mark.parametrize("batch", [1, 3])
    @pytest.mark.parametrize("prompt", [1, 2, 3, 7, 16, 31, 44])
    def test_tokens_are_those_without_a_cache(self, device, model, batch, prompt):
        ids = prompts(batch, prompt, device)
        tokens = generate(model, ids, 20)
        assert torch.equal(tokens, self.reference(model, ids, 20))
        assert torch.equal(tokens.cpu(), ref.greedy(model, ids, 20))  # the reference's tokens
        assert len(tokens[0, prompt:].unique()) > 5  # not one repeated token

    @torch.no_grad()
    @pytest.mark.parametrize(
        "split", [(1, 11), (11, 1), (4, 4, 4), (1, 1, 10), (5, 6, 1), (1,) * 12]
    )
    def test_any_split_gives_the_same_logits(self, device, model, split):
        ids = prompts(2, 12, device)
        cache = KVCache.for_model(model, 2, 12)
        parts = [model(part, cache) for part in ids.split(list(split), dim=1)]
        assert cache.length == 12
        assert_close(torch.cat(parts, dim=1), ref.logits(model, ids))

    @torch.no_grad()
    def test_reuse_after_reset(self, device, model):
        cache = KVCache.for_model(model, 2, 50)
        generate(model, prompts(2, 30, device), 20, cache=cache)
        assert cache.length == 49  # the last token is not fed back
        for prompt in (3, 40, 1):
            ids = prompts(2, prompt, device)
            assert torch.equal(generate(model, ids, 10, cache=cache), generate(model, ids, 10))
        held = [one.data_ptr() for one in cache.keys + cache.values]
        cache.reset()
        assert cache.length == 0
        assert [one.data_ptr() for one in cache.keys + cache.values] == held

    @torch.no_grad()
    def test_reset_forgets_what_is_no_number_too(self, device, model):
        """`reset` also clears NaN, because masking multiplies by 0 and would keep the NaN."""
        cache = KVCache.for_model(model, 1, 30)
        model(prompts(1, 20, device), cache)
        for one in cache.keys + cache.values:
            one[:, :, 12:].fill_(math.nan)
        cache.reset()
        ids = prompts(1, 6, device)
        model(ids[:, :5], cache)
        logits = model.step(ids[:, 5:], torch.tensor([5], device=device), cache)
        assert_close(logits, ref.logits(model, ids)[:, -1:])

    @torch.no_grad()
    def test_overflow_is_refused(self, device, model):
        cache = KVCache.for_model(model, 1, 8)
        model(prompts(1, 6, device), cache)
        before = torch.stack(cache.keys)
        with pytest.raises(ValueError, match="room for 8 tokens and holds 6: 3 more do not fit"):
            model(prompts(1, 3, device), cache)
        assert cache.length == 6
        assert torch.equal(torch.stack(cache.keys), before)  # nothing was written
        model(prompts(1, 2, device), cache)  # a full cache is allowed
        with pytest.raises(ValueError, match="1 more do not fit"):
            model(prompts(1, 1, device), cache)

    def test_wrong_sizes_are_refused(self, device, model):
        with pytest.raises(ValueError, match="for 2 sequences, got 3"):
            model(prompts(3, 4, device), KVCache.for_model(model, 2, 8))
        with pytest.raises(ValueError, match=r"capacity must be in 1\.\.64"):
            KVCache.for_model(model, 1, 65)
        with pytest.raises(ValueError, match=r"65 tokens are more than the model's 64 positions"):
            model(prompts(1, 65, device))

    def test_bytes_are_those_of_its_storage(self, device):
        cache = KVCache.for_model(lively().to(device), 2, 50)
        assert cache.nbytes == 2 * 3 * 2 * 4 * 50 * 8 * 4  # two, L, B, H, S, D, float32
        assert (
            KVCache.for_model(lively().to(device, torch.bfloat16), 2, 50).nbytes
            == cache.nbytes // 2
        )


class TestCompiledDecode:
    ONE_LAYER = dataclasses.replace(SMALL, layers=1)

    @pytest.fixture(autouse=True)
    def forget_what_was_compiled(self):
        torch.compiler.reset()

    @pytest.mark.parametrize("batch", [1, 2])
    def test_tokens_are_those_of_eager(self, device, batch):
        model = lively(self.ONE_LAYER).to(device)
        decode = CompiledDecode(model, backend="aot_eager")
        cache = KVCache.for_model(model, batch, 40)
        assert decode.compile(cache) > 0
        assert (cache.length, decode.path_taken) == (0, "compiled (aot_eager)")
        for prompt in (5, 20):
            ids = prompts(batch, prompt, device)
            tokens = generate(model, ids, 20, cache=cache, decode=decode)
            assert torch.equal(tokens.cpu(), ref.greedy(model, ids, 20))

    def test_inductor(self, device):
        if reason := no_inductor(device):
            pytest.skip(reason)
        model = lively(self.ONE_LAYER).to(device)
        skipped = counters["inductor"]["cudagraph_skips"]
        decode, cache = CompiledDecode(model), KVCache.for_model(model, 1, 16)
        decode.compile(cache)
        if "CUDA graphs" in decode.path_taken:  # torch only warns if it leaves them out
            assert counters["inductor"]["cudagraph_skips"] == skipped
        ids = prompts(1, 6, device)
        tokens = generate(model, ids, 10, cache=cache, decode=decode)
        assert torch.equal(tokens.cpu(), ref.greedy(model, ids, 10))

    @torch.no_grad()
    def test_no_cache_is_copied(self, device, monkeypatch):
        """The generated code, which is not run, allocates nothing as large as a layer's keys."""
        if reason := no_inductor(device):
            pytest.skip(reason)
        model, codes = lively(dataclasses.replace(SMALL, layers=2)).to(device), []

        def keep(code: str) -> None:
            codes.append(code)
            raise ValueError("enough")

        monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(keep))
        step, cache = compile_step(model, "inductor"), KVCache.for_model(model, 1, 56)
        zero = torch.zeros(1, dtype=torch.int64, device=device)
        with pytest.raises(Exception, match="enough"), config.patch(fx_graph_cache=False):
            step(zero[:, None], zero, cache, 56)
        shapes = re.findall(r"empty_strided\w*\(\(([\d, ]+)\)", codes[0])
        sizes = [math.prod(int(one) for one in re.findall(r"\d+", shape)) for shape in shapes]
        assert 0 < max(sizes) < cache.keys[0].numel()

    @torch.no_grad()
    def test_full_cache_is_refused(self, device):
        model = lively(self.ONE_LAYER).to(device)
        decode, cache = CompiledDecode(model, backend="eager"), KVCache.for_model(model, 1, 4)
        model(prompts(1, 4, device), cache)
        with pytest.raises(ValueError, match="1 more do not fit"):
            decode(prompts(1, 1, device), cache)

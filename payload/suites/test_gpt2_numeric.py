"""Numbers of GPT-2 against float64 formulas: logits, gradients, causality, dtypes, sampling."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter
from torch.func import functional_call

from suites import gpt2_reference as ref
from suites.gpt2_reference import SMALL, lively, prompts
from suites.numerics import assert_close, relative_error, rms_error
from torchbridge.llm import GPT2, GPT2Config, KVCache, Sampling, generate, next_token

SIZES = [  # vocabulary, positions, layers, heads, width
    (11, 8, 1, 1, 4),
    (50, 40, 2, 3, 24),
    (97, 64, 3, 4, 32),
    (131, 32, 5, 2, 20),
    (300, 128, 2, 12, 96),
]


def sized(vocabulary: int, positions: int, layers: int, heads: int, width: int) -> GPT2Config:
    """A config without dropout."""
    sizes = {"vocabulary": vocabulary, "positions": positions, "layers": layers}
    return GPT2Config(**sizes, heads=heads, width=width, dropout=0.0)


class TestLogits:
    @torch.no_grad()
    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_against_formulas(self, device, sizes):
        config = sized(*sizes)
        model = lively(config).to(device)
        for batch, tokens in ((1, 1), (2, config.positions // 2), (3, config.positions)):
            ids = prompts(batch, tokens, device, config)
            assert_close(model(ids), ref.logits(model, ids))

    @torch.no_grad()
    @pytest.mark.parametrize("epsilon", [1e-5, 1e-1])
    def test_layer_norm_epsilon_counts(self, device, epsilon):
        config = dataclasses.replace(SMALL, layer_norm_epsilon=epsilon)
        model = GPT2(config).to(device).eval()  # features near zero, where epsilon is felt
        ids = prompts(2, 10, device)
        assert_close(model(ids), ref.logits(model, ids))

    @torch.no_grad()
    def test_double_is_exact(self, device):
        model = lively().to(device, torch.float64)
        ids = prompts(2, 33, device)
        assert_close(model(ids), ref.logits(model, ids))  # 1e-12

    @torch.no_grad()
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_narrow_dtypes(self, device, dtype):
        model = lively().to(device, dtype)
        ids = prompts(2, 33, device)
        cache = KVCache.of(model, 2, 33)
        parts = [model(part, cache) for part in ids.split([20, 1, 12], dim=1)]
        limit = 2e-2 if dtype == torch.bfloat16 else 3e-3
        for logits in (model(ids), torch.cat(parts, dim=1)):
            assert rms_error(logits, ref.logits(model, ids)) <= limit  # of the rounded weights

    @torch.no_grad()
    def test_sequences_do_not_see_each_other(self, device):
        model = lively().to(device, torch.float64)
        ids = prompts(4, 12, device)
        assert_close(model(ids), torch.cat([model(one[None]) for one in ids]))

    @torch.no_grad()
    def test_order_counts(self, device):
        model = lively().to(device)
        ids = torch.arange(12, device=device)[None]
        last = [model(order)[:, -1] for order in (ids, ids[:, [*range(10, -1, -1), 11]])]
        assert relative_error(*last) > 0.05


class TestCausality:
    @torch.no_grad()
    @pytest.mark.parametrize("changed", [1, 5, 10, 19])
    def test_the_future_changes_nothing(self, device, changed):
        model = lively().to(device, torch.float64)
        ids = prompts(2, 20, device)
        other = ids.clone()
        other[:, changed:] = (other[:, changed:] + 1) % SMALL.vocabulary
        before, after = model(ids), model(other)
        assert_close(after[:, :changed], before[:, :changed])
        assert relative_error(after[:, changed], before[:, changed]) > 0.01

    @torch.no_grad()
    @pytest.mark.parametrize("changed", [0, 4, 11])
    def test_the_past_changes_everything(self, device, changed):
        model = lively().to(device, torch.float64)
        ids = prompts(1, 20, device)
        other = ids.clone()
        other[:, changed] = (other[:, changed] + 1) % SMALL.vocabulary
        moved = (model(other) - model(ids)).abs().amax(dim=(0, 2))
        assert (moved[:changed] == 0).all()
        assert (moved[changed:] > 1e-3).all()  # that position and all later ones

    @torch.no_grad()
    @pytest.mark.parametrize("start", [1, 6, 15])
    def test_a_chunk_on_a_cache_is_causal_too(self, device, start):
        model = lively().to(device, torch.float64)
        ids = prompts(2, 20, device)
        other = ids.clone()
        other[:, -1] = (other[:, -1] + 1) % SMALL.vocabulary
        chunks = []
        for text in (ids, other):
            cache = KVCache.of(model, 2, 20)
            model(text[:, :start], cache)
            chunks.append(model(text[:, start:], cache))
        assert_close(chunks[1][:, :-1], chunks[0][:, :-1])
        assert relative_error(chunks[1][:, -1], chunks[0][:, -1]) > 0.01


class TestGradients:
    def test_of_every_weight(self, device):
        """By central differences of the float64 formulas, along a random direction each."""
        model = lively().to(device, torch.float64)
        ids, targets = prompts(2, 9, device), prompts(2, 9, device)
        F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()

        @torch.no_grad()
        def loss() -> float:
            return F.cross_entropy(ref.logits(model, ids).flatten(0, 1), targets.flatten().cpu())

        for name, parameter in model.named_parameters():
            direction = torch.randn_like(parameter)
            expected = (parameter.grad * direction).sum().item()
            sides = []
            for sign in (1, -2, 1):  # there, back past where it was, and home again
                parameter.data.add_(direction, alpha=sign * 1e-5)
                sides.append(loss())
            measured = (sides[0] - sides[1]).item() / 2e-5
            assert measured == pytest.approx(expected, rel=1e-4, abs=1e-7), name

    def test_tied_table_learns_from_both_ends(self, device):
        model = lively().to(device, torch.float64)
        ids = torch.full((1, 6), 3, device=device)
        model(ids)[..., 5].sum().backward()
        rows = model.tokens.weight.grad.abs().amax(dim=1)
        assert rows[5].item() > 0  # as an output
        assert rows[3].item() > 0  # as an input
        assert rows.count_nonzero().item() == 2


class TestDropout:
    def test_only_in_training(self, device):
        model = lively(dataclasses.replace(SMALL, dropout=0.3)).to(device)
        ids = prompts(2, 15, device)
        assert torch.equal(model(ids), model(ids))
        assert_close(model(ids), ref.logits(model, ids))
        assert relative_error(model.train()(ids), model(ids)) > 0.05

    @pytest.mark.parametrize("site", ["dropout", "blocks.1.dropout", "blocks.1.attention"])
    def test_at_every_site(self, device, site):
        model = lively().to(device)
        module = model.get_submodule(site)
        if site.endswith("attention"):
            module.dropout = 0.5
        else:
            module.p = 0.5
        ids = prompts(2, 15, device)
        assert_close(model(ids), ref.logits(model, ids))
        assert relative_error(model.train()(ids), model.eval()(ids)) > 0.01


class TestSampling:
    LOGITS = (2.0, 1.0, 0.5, 0.5, -1.0, -3.0)

    def counts(self, device, sampling: Sampling, draws: int = 40_000) -> torch.Tensor:
        """How often each of six tokens is drawn."""
        logits = torch.tensor([self.LOGITS], device=device).expand(draws, -1)
        generator = torch.Generator(device).manual_seed(17)
        return torch.bincount(next_token(logits, sampling, generator).cpu(), minlength=6).double()

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_frequencies_are_the_probabilities(self, device, temperature):
        powers = [math.exp(z / temperature) for z in self.LOGITS]
        expected = torch.tensor(powers, dtype=torch.float64) / sum(powers) * 40_000
        counts = self.counts(device, Sampling(temperature=temperature))
        assert ((counts - expected) ** 2 / expected).sum() < 20.5  # chi-square, 5 degrees, p=0.001

    @pytest.mark.parametrize(("top_k", "kept"), [(1, 1), (2, 2), (3, 4), (4, 4), (6, 6), (99, 6)])
    def test_top_k(self, device, top_k, kept):
        powers = [math.exp(z) for z in self.LOGITS[:kept]]  # a tie with the k-th stays in
        expected = torch.tensor(powers, dtype=torch.float64) / sum(powers) * 40_000
        counts = self.counts(device, Sampling(top_k=top_k))
        assert counts[kept:].sum().item() == 0
        assert ((counts[:kept] - expected) ** 2 / expected).sum() < 20.5

    def test_rows_are_independent(self, device):
        logits = torch.zeros(2000, 4, device=device)
        drawn = next_token(logits, Sampling(), torch.Generator(device).manual_seed(1))
        same = (drawn[1:] == drawn[:-1]).double().mean().item()
        assert same == pytest.approx(1 / 4, abs=0.04)

    def test_nearly_cold_is_greedy(self, device):
        model = lively().to(device)
        ids = prompts(2, 5, device)
        cold = generate(model, ids, 20, sampling=Sampling(temperature=1e-6))
        assert torch.equal(cold, generate(model, ids, 20))
        assert torch.equal(generate(model, ids, 20, sampling=Sampling(top_k=1)), cold)

    @pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"top_k": 0}])
    def test_nonsense_is_refused(self, settings):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Sampling(**settings)


class TestLearning:
    def test_learns_a_sentence_by_heart(self, device):
        model = GPT2(dataclasses.replace(SMALL, layers=2)).to(device).train()
        text = prompts(1, 24, device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(80):
            optimizer.zero_grad()
            F.cross_entropy(model(text[:, :-1])[0], text[0, 1:]).backward()
            optimizer.step()
        tokens = generate(model.eval(), text[:, :4], 20)
        assert torch.equal(tokens, text)

    def test_loss_as_drawn_is_that_of_guessing(self, device):
        model = GPT2(SMALL).to(device).eval()
        ids = prompts(4, 60, device)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        assert loss.item() == pytest.approx(math.log(97), rel=0.01)

    def test_functional_call_sees_the_tie(self, device):
        model = lively().to(device)
        ids = prompts(1, 5, device)
        zero = {"tokens.weight": torch.zeros_like(model.tokens.weight)}
        assert functional_call(model, zero, (ids,)).abs().max().item() == 0


class TestTraced:
    """A length that a compiler leaves open is a symbol, and so is what compares it."""

    @torch.no_grad()
    def test_exported_with_any_length(self):
        model = lively()
        ids = prompts(2, 8, torch.device("cpu"))
        length = torch.export.Dim("length", min=2, max=SMALL.positions)
        program = torch.export.export(model, (ids,), dynamic_shapes=({1: length},)).module()
        for tokens in (2, 5, 33):
            ids = prompts(2, tokens, ids.device)
            assert_close(program(ids), ref.logits(model, ids))

    @torch.no_grad()
    def test_compiled_once_more_for_all_further_lengths(self):
        torch.compiler.reset()
        counter = CompileCounter()
        compiled = torch.compile(lively(), backend=counter)
        for tokens in (8, 9, 17, 30):
            compiled(prompts(2, tokens, torch.device("cpu")))
        assert counter.frame_count == 2

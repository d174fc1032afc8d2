"""GPT-2 against float64 formulas: logits, gradients, sampling; and how two models agree."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter

from suites import gpt2_reference as ref
from suites.gpt2_reference import SMALL, WIDER, lively, prompts
from suites.numerics import assert_close, relative_error, rms_error
from suites.recorded_graphs import TapeGraphs
from torchbridge.llm import (
    GPT2,
    Agreement,
    GPT2Config,
    GraphedDecode,
    KVCache,
    Sampling,
    next_token,
    quantise_int8,
    stepwise,
    teacher_forced,
)

IDS = torch.zeros(1, 3, dtype=torch.int64)
SIZES = [  # vocabulary, positions, layers, heads, width
    (11, 8, 1, 1, 4),
    (50, 40, 2, 3, 24),
    (97, 64, 3, 4, 32),
    (131, 32, 5, 2, 20),
    (300, 128, 2, 12, 96),
]


def sized(vocabulary: int, positions: int, layers: int, heads: int, width: int) -> GPT2Config:
    """Return a config with these sizes and without dropout."""
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
        model = GPT2(config).to(device).eval()  # features near zero, where epsilon matters
        ids = prompts(2, 10, device)
        assert_close(model(ids), ref.logits(model, ids))

    @torch.no_grad()
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_narrow_dtypes(self, device, dtype):
        model = lively().to(device, dtype)
        ids = prompts(2, 33, device)
        cache = KVCache.for_model(model, 2, 33)
        parts = [model(part, cache) for part in ids.split([20, 1, 12], dim=1)]
        limit = 2e-2 if dtype == torch.bfloat16 else 3e-3
        for logits in (model(ids), torch.cat(parts, dim=1)):
            assert rms_error(logits, ref.logits(model, ids)) <= limit  # with rounded weights


class TestGradients:
    def test_of_every_weight(self, device):
        """The gradient of each weight equals central differences along a random direction.

        The differences are of the float64 formulas.
        """
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
            for sign in (1, -2, 1):  # forward, backward, and to the start
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
    def test_at_every_site(self, device, model, site):
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
        """Return how often each of six tokens is drawn, in float64."""
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
        powers = [math.exp(z) for z in self.LOGITS[:kept]]  # ties with the k-th are kept
        expected = torch.tensor(powers, dtype=torch.float64) / sum(powers) * 40_000
        counts = self.counts(device, Sampling(top_k=top_k))
        assert counts[kept:].sum().item() == 0
        assert ((counts[:kept] - expected) ** 2 / expected).sum() < 20.5

    def test_rows_are_independent(self, device):
        logits = torch.zeros(2000, 4, device=device)
        drawn = next_token(logits, Sampling(), torch.Generator(device).manual_seed(1))
        same = (drawn[1:] == drawn[:-1]).double().mean().item()
        assert same == pytest.approx(1 / 4, abs=0.04)

    @pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"top_k": 0}])
    def test_nonsense_is_refused(self, settings):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Sampling(**settings)


class TestTraced:
    """A traced model keeps the length and its comparisons symbolic, so it serves all lengths."""

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


def saying(rows: list[list[float]]):
    """Return a model that returns these logits for any ids."""
    return lambda ids: torch.tensor([rows], dtype=torch.float64)


class TestAgreement:
    def test_by_hand(self):
        reference = saying([[0, 0], [0, math.log(3)], [math.log(3), 0]])
        model = saying([[0, math.log(3)], [0, math.log(3)], [0, 0]])
        # both take the first of equals: only the second position agrees, and the last
        found = teacher_forced(model, reference, IDS)
        half = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
        skewed = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
        assert found.top1 == pytest.approx(2 / 3)
        assert found.kl == pytest.approx((half + 0 + skewed) / 3)
        assert found.max_difference == pytest.approx(math.log(3))
        assert found.positions == 3

    def test_a_shift_of_all_logits_is_no_divergence(self):
        reference, model = saying([[0, 1], [2, 0], [3, 9]]), saying([[5, 6], [7, 5], [8, 14]])
        found = teacher_forced(model, reference, IDS)
        assert found.kl == pytest.approx(0, abs=1e-12)
        assert (found.top1, found.max_difference) == (1.0, 5.0)

    def test_many_positions_are_compared_in_parts(self):
        logits = torch.randn(2, 100, 7, dtype=torch.float64)
        other = logits + 0.1 * torch.randn_like(logits)
        ids = torch.zeros(2, 100, dtype=torch.int64)
        found = teacher_forced(lambda _: other, lambda _: logits, ids)
        logs, said = logits.log_softmax(-1), other.log_softmax(-1)
        each = F.kl_div(said, logs, log_target=True, reduction="none").sum(dim=-1)
        assert found.kl == pytest.approx(each.mean().item())
        assert found.max_difference == (other - logits).abs().max().item()

    @pytest.mark.parametrize(
        ("found", "missed"),
        [
            ((0.9, 1e-3, 0.1), []),
            ((0.5, 1e-3, 0.1), ["top-1 0.500 is below 0.8"]),
            ((0.9, 2e-2, 0.1), ["KL 2.00e-02 is over 0.01"]),
            ((0.9, 1e-3, 0.7), ["a logit is 0.700 off, over 0.5"]),
            ((math.nan, math.nan, math.nan), ["top-1 nan", "KL nan", "a logit is nan"]),
        ],
    )
    def test_limits(self, found, missed):
        limit = Agreement(top1=0.8, kl=0.01, max_difference=0.5)
        top1, kl, largest = found
        words = Agreement(top1=top1, kl=kl, max_difference=largest).misses(limit)
        assert len(words) == len(missed)
        assert all(word.startswith(start) for word, start in zip(words, missed, strict=True))

    def test_a_nan_is_no_agreement(self):
        found = teacher_forced(
            saying([[0, math.nan], [0, 1], [0, 1]]), saying([[0, 1], [0, 1], [0, 1]]), IDS
        )
        limit = Agreement(top1=0.0, kl=1e9, max_difference=1e9)
        assert len(found.misses(limit)) == 2

    def test_what_cannot_be_compared(self):
        with pytest.raises(ValueError, match="no tokens"):
            teacher_forced(saying([]), saying([]), IDS[:, :0])
        with pytest.raises(ValueError, match="are not"):
            teacher_forced(saying([[0, 1, 2]] * 3), saying([[0, 1]] * 3), IDS)

    @torch.no_grad()
    def test_stepwise_is_what_the_decode_computes(self, device, model):
        ids = prompts(2, 30, device)
        assert_close(stepwise(model)(ids), model(ids))
        cache = KVCache.for_model(model, 2, 30)
        decode = GraphedDecode(model, cache, graphs=TapeGraphs())  # always returns the same buffer
        assert_close(stepwise(model, decode, cache)(ids), model(ids))

    @torch.no_grad()
    @pytest.mark.parametrize(
        ("kind", "limit"),
        [
            ("bfloat16", Agreement(top1=0.9, kl=3e-3, max_difference=1.0)),
            ("int8", Agreement(top1=0.9, kl=1e-2, max_difference=2.0)),
            ("int8_bfloat16", Agreement(top1=0.85, kl=1.5e-2, max_difference=2.0)),
        ],
    )
    def test_narrow_models(self, device, kind, limit):
        model = lively(WIDER).to(device)
        narrow = copy.deepcopy(model)
        if "bfloat16" in kind:
            narrow = narrow.to(torch.bfloat16)
        if "int8" in kind:
            narrow = quantise_int8(narrow)
        ids = prompts(4, 100, device, WIDER)
        assert not teacher_forced(narrow, model, ids).misses(limit)
        assert not teacher_forced(stepwise(narrow), model, ids[:, :60]).misses(limit)
        assert teacher_forced(narrow, model, ids).kl > 1e-7  # the models differ

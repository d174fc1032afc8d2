"""Teacher-forced agreement, and the ways of a product with int8 weights."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites.gpt2_reference import lively, prompts
from suites.numerics import assert_close, rms_error
from suites.recorded_graphs import TapeGraphs
from suites.test_gpt2_numeric_int8 import WIDER
from torchbridge.llm import (
    Agreement,
    GraphedDecode,
    Int8Linear,
    KVCache,
    decode_path,
    int8_path,
    quantise_int8,
    stepwise,
    teacher_forced,
)

CPU = torch.device("cpu")
IDS = torch.zeros(1, 3, dtype=torch.int64)


def saying(rows: list[list[float]]):
    """A model that says these logits, whatever it is told."""
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
    def test_stepwise_is_what_the_decode_computes(self, device):
        model = lively().to(device)
        ids = prompts(2, 30, device)
        assert_close(stepwise(model)(ids), model(ids))
        cache = KVCache.of(model, 2, 30)
        decode = GraphedDecode(model, cache, graphs=TapeGraphs())  # gives one buffer, always
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
        assert teacher_forced(narrow, model, ids).kl > 1e-7  # it is another model


class TestInt8Path:
    @pytest.mark.parametrize(
        ("rows", "dtype", "device", "compiling", "vectors", "name", "reason"),
        [
            (1, torch.bfloat16, "cpu", False, "AVX512", "packed", "bfloat16 and AVX512"),
            (64, torch.bfloat16, "cpu", True, "AVX2", "packed", "bfloat16 and AVX2"),
            (1, torch.bfloat16, "cpu", False, "DEFAULT", "wide", "no kernel for torch.bfloat16"),
            (1, torch.float32, "cpu", False, "AVX512", "wide", "not compiled"),
            (1, torch.float32, "cpu", True, "AVX512", "fused", "at most 4 rows"),
            (4, torch.bfloat16, "cuda", True, "AVX2", "fused", "at most 4 rows"),
            (5, torch.bfloat16, "cuda", True, "AVX2", "wide", "5 rows are worth"),
            (1, torch.bfloat16, "cuda", False, "AVX2", "wide", "bfloat16 on cuda"),
        ],
    )
    def test_table(self, rows, dtype, device, compiling, vectors, name, reason):
        path = int8_path(rows, dtype, torch.device(device), compiling=compiling, vectors=vectors)
        assert path.name == name
        assert reason in path.reason

    def test_of_a_model(self):
        assert decode_path(lively(), 1, compiled=True) is None
        int8 = quantise_int8(lively())
        assert decode_path(int8, 1, compiled=True).name == "fused"
        assert decode_path(int8, 8, compiled=True).name == "wide"
        assert decode_path(int8, 1, compiled=False).name == "wide"

    @pytest.mark.parametrize("rows", [1, 3, 33])
    @pytest.mark.parametrize("bias", [True, False])
    def test_bfloat16_against_double(self, device, rows, bias):
        linear = nn.Linear(256, 96, bias=bias).to(device, torch.bfloat16)
        int8 = Int8Linear(linear)
        x = torch.randn(2, rows, 256, device=device, dtype=torch.bfloat16)
        weight = int8.weight.double() * int8.step.double()[:, None]
        expected = F.linear(x.double(), weight, linear.bias.double() if bias else None)
        assert int8(x).dtype == torch.bfloat16
        assert rms_error(int8(x), expected) < 4e-3  # sums are wide, what is said has 8 bits

    @torch.no_grad()
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("rows", [1, 4, 5])
    def test_compiled_against_double(self, device, dtype, rows):
        torch.compiler.reset()
        int8, graphs = Int8Linear(nn.Linear(64, 40).to(device, dtype)), []

        def keep(graph, inputs):
            graphs.append(str(graph.code))
            return graph.forward

        x = torch.randn(rows, 64, device=device, dtype=dtype)
        output = torch.compile(int8, backend=keep, dynamic=False)(x)
        weight = int8.weight.double() * int8.step.double()[:, None]
        expected = F.linear(x.double(), weight, int8.bias.double())
        assert_close(output, expected)
        path = int8_path(rows, dtype, device, compiling=True).name
        seen = {"fused": ".sum(", "packed": "_weight_int8pack_mm", "wide": "linear("}
        assert [name for name, mark in seen.items() if mark in graphs[0]] == [path]

    def test_weights_are_rows_whatever_they_were_made_from(self):
        turned = nn.Linear(24, 16)
        turned.weight.data = turned.weight.data.T.contiguous().T
        assert Int8Linear(turned).weight.is_contiguous()

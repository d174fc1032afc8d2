"""int8 weights: rounding, error, memory, and the path of each product; what LLMOptimizer does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites import gpt2_reference as ref
from suites.covering import pairwise
from suites.gpt2_reference import WIDER, lively, prompts
from suites.numerics import assert_close, relative_error, rms_error
from torchbridge.llm import (
    GPT2,
    CompiledDecode,
    Int8Linear,
    KVCache,
    LLMConfig,
    LLMOptimizer,
    OptimizedLLM,
    decode_path,
    generate,
    int8_path,
    quantise_int8,
    quantise_rows,
)
from torchbridge.llm.quantise import why_no_int8
from torchbridge.memory import model_bytes
from torchbridge.passes import Prepared


def dequantised(model: GPT2) -> GPT2:
    """Return a float model with the weights that the int8 model represents."""
    twin = GPT2(model.config).to(model.positions.weight)
    state = model.state_dict()
    for name in [name for name in state if name.endswith(".step")]:
        weight = name.replace(".step", ".weight")
        state[weight] = state[weight].double() * state.pop(name).double()[:, None]
    twin.load_state_dict(state)
    return twin.eval()


class TestRows:
    @pytest.mark.parametrize("shape", [(1, 1), (3, 7), (64, 128), (200, 33)])
    def test_within_half_a_step(self, device, shape):
        weight = torch.randn(shape, device=device) * torch.rand(shape[0], 1, device=device) * 10
        q, step = quantise_rows(weight)
        assert (q.dtype, step.dtype, step.shape) == (torch.int8, torch.float32, shape[:1])
        error = (q.double() * step.double()[:, None] - weight.double()).abs()
        assert (error <= 0.5001 * step.double()[:, None]).all()
        assert torch.equal(step, weight.abs().amax(dim=1) / 127)
        assert (q.abs().amax(dim=1) == 127).all()  # the largest of each row uses the last step

    def test_each_row_has_its_own_step(self, device):
        sizes = torch.tensor([[1e-3], [1], [1e3], [0]], device=device)
        weight = torch.randn(4, 50, device=device) * sizes
        q, step = quantise_rows(weight)
        back = q.float() * step[:, None]
        for row in range(3):
            assert rms_error(back[row], weight[row]) < 0.01
        assert (q[3] == 0).all()
        assert back[3].abs().max().item() == 0


class TestLinear:
    @pytest.mark.parametrize(
        ("shape", "dtype", "bias"),
        pairwise([(5,), (2, 33), (2, 3, 4), ()], [torch.float32, torch.bfloat16], [True, False]),
    )
    def test_against_double(self, device, shape, dtype, bias):
        linear = nn.Linear(256, 96, bias=bias).to(device, dtype)
        int8 = Int8Linear(linear)
        x = torch.randn(*shape, 256, device=device, dtype=dtype)
        weight = int8.weight.double() * int8.step.double()[:, None]
        expected = F.linear(x.double(), weight, linear.bias.double() if bias else None)
        assert int8(x).dtype == dtype
        assert_close(int8(x), expected)
        assert rms_error(int8(x), expected) < 4e-3  # float32 sums, an output of 8 bits at least
        assert rms_error(int8(x), linear(x)) < 0.02  # against the original layer


class TestModel:
    @torch.no_grad()
    def test_computes_what_its_weights_say(self, device):
        int8 = quantise_int8(lively()).to(device)
        ids = prompts(2, 20, device)
        assert_close(int8(ids), ref.logits(dequantised(int8), ids))

    @torch.no_grad()
    def test_original_is_left_alone(self, device):
        model = lively().to(device)
        ids = prompts(2, 20, device)
        before, keys = model(ids), list(model.state_dict())
        int8 = quantise_int8(model)
        assert torch.equal(model(ids), before)
        assert list(model.state_dict()) == keys
        assert int8.norm.weight is model.norm.weight  # what is not quantised is shared
        assert relative_error(int8(ids), before) > 1e-4  # quantised layers give other numbers

    def test_memory_is_that_of_storage(self):
        model = GPT2(WIDER)
        matrices = WIDER.vocabulary * 128 + WIDER.layers * 12 * 128 * 128
        rows = WIDER.vocabulary + WIDER.layers * (3 + 1 + 4 + 1) * 128
        rest = WIDER.parameters - matrices
        assert model_bytes(model) == 4 * WIDER.parameters
        assert model_bytes(quantise_int8(model)) == matrices + 4 * rows + 4 * rest

    def test_state_round_trip(self, device, tmp_path):
        int8, other = (quantise_int8(lively(seed=seed)).to(device) for seed in (1, 2))
        torch.save(int8.state_dict(), tmp_path / "int8.pt")
        other.load_state_dict(torch.load(tmp_path / "int8.pt", weights_only=True))
        ids = prompts(2, 9, device)
        assert torch.equal(other(ids), int8(ids))


class TestLLMOptimizer:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"quantization": "int4"}, "'int4' is not a valid QuantizationMode"),
            ({"dtype": torch.int8}, "floating-point"),
        ],
    )
    def test_what_is_refused_by_name(self, settings, message):
        with pytest.raises(ValueError, match=message):
            LLMConfig(**settings)

    def test_nothing_asked_nothing_done(self, device):
        model = lively()
        ids = prompts(2, 9, device)
        expected = ref.greedy(model, ids, 15)
        ready = LLMOptimizer(device=device).optimize(model.train())
        assert torch.equal(ready.generate(ids, 15).cpu(), expected)
        assert "quantise" not in ready.prepared.applied
        assert ready.prepared.result("quantise").reason == "quantization is 'none'"

    def test_int8(self, device):
        model = lively()
        ids = prompts(2, 9, device)
        ready = LLMOptimizer(LLMConfig(quantization="int8"), device=device).optimize(model)
        sizes = f"{model_bytes(model):,} bytes of weights are {model_bytes(ready.model):,}"
        evidence = ready.prepared.result("quantise").evidence
        assert evidence == f"13 layers in int8, {sizes}"  # 3 blocks of 4, and the table
        assert torch.equal(generate(ready.model, ids, 9), generate(quantise_int8(model), ids, 9))

    @torch.no_grad()
    def test_layout_changes_no_number(self, device):
        model = lively().to(device)
        ids = prompts(2, 20, device)
        expected, state = model(ids), {n: p.clone() for n, p in model.state_dict().items()}
        ready = LLMOptimizer(device=device).optimize(model)
        assert_close(ready.model(ids), expected)
        assert all(torch.equal(ready.model.state_dict()[name], p) for name, p in state.items())
        result = ready.prepared.result("lay_out")
        if device.type == "cpu":
            assert result.evidence == "13 weights stored along their outputs"
            assert ready.model.blocks[0].up.weight.stride() == (1, 128)
        else:
            assert result.reason == "only a CPU gains by it"

    def test_bfloat16(self, device):
        ready = LLMOptimizer(LLMConfig(dtype=torch.bfloat16), device=device).optimize(lively())
        assert {p.dtype for p in ready.model.parameters()} == {torch.bfloat16}
        assert ready.prepared.result("place").evidence == f"torch.bfloat16 on {ready.model.device}"
        ids = prompts(2, 20, device)
        cache = KVCache.for_model(ready.model, 2, 20)
        with torch.no_grad():
            assert rms_error(ready.model(ids, cache), ref.logits(lively(), ids)) < 0.03
        assert cache.keys[0].dtype == torch.bfloat16

    def test_fp8(self, device):
        model = lively()
        ids = prompts(2, 20, device)
        expected = ref.logits(model, ids)
        ready = LLMOptimizer(LLMConfig(quantization="fp8"), device=device).optimize(model)
        assert ready.prepared.result("quantise").evidence.startswith("12 layers in fp8")
        assert model_bytes(ready.model) < 0.6 * model_bytes(model)  # embeddings are unchanged
        with torch.no_grad():
            whole = ready.model(ids)
            assert_close(ready.model(ids[:, :9]), whole[:, :9], 1e-4)  # scales are per token
        assert 1e-4 < rms_error(whole, expected) < 0.15  # e4m3 keeps four bits, no more, no less

    @pytest.mark.parametrize(
        ("device", "batch", "compiled", "refused"),
        [
            ("meta", 4, True, False),
            ("meta", 5, True, True),
            ("meta", 1, False, True),
            ("cpu", 5, False, False),
        ],
    )
    def test_where_int8_loses_it_is_refused(self, device, batch, compiled, refused):
        """int8 is refused where it is slower; the meta device replaces an accelerator.

        The CPU cannot replace it, because the CPU has int8 kernels of its own.
        """
        int8 = quantise_int8(lively()).to(device)
        assert bool(why_no_int8(int8, batch, compiled=compiled)) is refused
        assert why_no_int8(lively().to(device), batch, compiled=compiled) is None
        if refused:
            decode = CompiledDecode(int8, "eager") if compiled else None
            ready = OptimizedLLM(Prepared(int8, "llm"), decode)
            with pytest.raises(ValueError, match="int8 weights would be widened at every step"):
                ready.generate(torch.zeros(batch, 3, dtype=torch.int64), 2)

    def test_compiled_decode(self, device):
        config = LLMConfig(quantization="int8", compile_backend="aot_eager")
        ready = LLMOptimizer(config, device=device).optimize(lively())
        assert ready.decode.path_taken == "compiled (aot_eager)"
        ids = prompts(1, 9, device)
        assert torch.equal(ready.generate(ids, 20), generate(ready.model, ids, 20))
        assert LLMOptimizer(device=device).optimize(lively()).decode is None


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

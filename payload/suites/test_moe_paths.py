"""The paths that compute the experts: the same numbers on each, and when each is taken."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from suites import interpreter
from suites import moe_reference as ref
from suites.moe_reference import CUDA, layer_of, skip_kind, skip_without
from suites.numerics import TOLERANCE, double, relative_error
from torchbridge import moe
from torchbridge.hardware import Hardware
from torchbridge.kernels import Kernel
from torchbridge.moe import Batch, Path, banks, paths
from torchbridge.moe.dispatch import by_kernel
from torchbridge.moe.paths import FEW_ROWS, choose, why_no_kernel

WAYS = ["grouped_mm", "slots", "segments"]
SIZES = [  # tokens, hidden, expert hidden, experts, top-k
    (1, 16, 32, 4, 2),
    (1, 8, 8, 1, 1),
    (3, 8, 16, 64, 2),  # most experts get nothing
    (17, 24, 40, 7, 7),  # all experts get everything
    (63, 40, 24, 16, 4),
]


class TestNumbers:
    @pytest.mark.parametrize(("tokens", "hidden", "expert_hidden", "experts", "top_k"), SIZES)
    @pytest.mark.parametrize("dispatch", WAYS)
    def test_output_and_gradients(
        self, device, dispatch, tokens, hidden, expert_hidden, experts, top_k
    ):
        skip_without(device, torch.float32, dispatch)
        sizes = {"num_experts": experts, "top_k": top_k}
        layer = layer_of(device, torch.float32, dispatch, hidden, expert_hidden, **sizes)
        x = torch.randn(tokens, hidden, device=device, requires_grad=True)
        seed = torch.randn(tokens, hidden, device=device)
        output = layer(x)
        output.backward(seed)
        leaves, wide = ref.double_leaves(layer), double(x).requires_grad_()
        expected = ref.dense_differentiable(layer, wide, leaves)
        expected.backward(double(seed))
        assert layer.path_taken == dispatch
        assert int(layer.computed.sum()) == tokens * top_k
        assert relative_error(output, expected) <= TOLERANCE[torch.float32]
        assert relative_error(x.grad, wide.grad) <= TOLERANCE[torch.float32]
        for name, parameter in layer.named_parameters():
            if experts > 1 or name != "router.gate.weight":  # one expert: the weight is always 1
                error = relative_error(parameter.grad, leaves[name].grad)
                assert error <= 2 * TOLERANCE[torch.float32], name

    @pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: str(d).removeprefix("torch."))
    @pytest.mark.parametrize("dispatch", WAYS)
    @pytest.mark.parametrize("kind", list(moe.LAYERS))
    def test_without_gradients(self, device, dtype, dispatch, kind):
        skip_without(device, dtype, dispatch)
        layer = layer_of(device, dtype, dispatch, kind=kind, drop_tokens=False)
        ref.assert_matches_reference(layer, torch.randn(37, 32, device=device, dtype=dtype))
        assert layer.path_taken == dispatch

    @pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
    @pytest.mark.parametrize("use_bias", [True, False])
    @pytest.mark.parametrize("kind", ["standard", "glam"])
    def test_inference_is_training_without_gradients(self, device, activation, use_bias, kind):
        settings = {"activation": activation, "use_bias": use_bias}
        layer = layer_of(device, torch.float64, "segments", kind=kind, **settings)
        x = torch.randn(90, 32, dtype=torch.float64, device=device)
        kept, trained = x.clone(), layer(x)
        with torch.no_grad():
            assert relative_error(layer(x), trained) <= 1e-14
        assert torch.equal(x, kept)  # in-place operations do not change x

    def test_dropout_is_drawn_without_gradients_too(self, device):
        layer = layer_of(device, torch.float32, "segments", expert_dropout=0.5).train()
        x = torch.randn(50, 32, device=device)
        with torch.no_grad():
            assert relative_error(layer(x), layer(x)) > 0.01
            assert torch.equal(layer.eval()(x), layer(x))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("gradient", [False, True])
    @pytest.mark.parametrize("dispatch", WAYS)
    def test_autocast_picks_the_dtype(self, device, dispatch, gradient, dtype):
        skip_without(device, torch.bfloat16, dispatch)
        layer = layer_of(device, torch.float32, dispatch).eval()
        x = torch.randn(50, 32, device=device).to(dtype)
        with torch.set_grad_enabled(gradient), torch.autocast(device.type, torch.bfloat16):
            narrow = layer(x)
        assert (narrow.dtype, layer.path_taken) == (torch.bfloat16, dispatch)
        layer.config = layer.experts.config = dataclasses.replace(layer.config, dispatch="segments")
        whole = layer(x.float())
        assert 1e-4 < relative_error(narrow, whole) <= TOLERANCE[torch.bfloat16]
        if gradient:
            pairs = [
                torch.autograd.grad(one.sum(), [*layer.parameters()]) for one in (narrow, whole)
            ]
            for one, should in zip(*pairs, strict=True):
                assert one.dtype == torch.float32
                assert relative_error(one, should) <= 2 * TOLERANCE[torch.bfloat16]

    @pytest.mark.parametrize("dispatch", WAYS)
    def test_two_calls_are_equal_bit_for_bit(self, device, dispatch):
        skip_without(device, torch.float32, dispatch)
        layer = layer_of(device, torch.float32, dispatch).eval()
        x = torch.randn(64, 32, device=device, requires_grad=True)
        runs = []
        for _ in range(2):
            output = layer(x)
            gradients = torch.autograd.grad(output.square().sum(), (x, *layer.parameters()))
            with torch.no_grad():
                runs.append((output, layer(x), *gradients))
        assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))

    @pytest.mark.parametrize("dispatch", WAYS)
    def test_experts_without_tokens(self, device, dispatch):
        skip_without(device, torch.float32, dispatch)
        layer = layer_of(device, torch.float32, dispatch)
        mask = torch.tensor([False, True, True, False, False, True, False, False])
        x = torch.randn(40, 32, device=device)
        layer(x, mask).sum().backward()
        assert ((layer.computed > 0).cpu() == mask).all()
        for name, parameter in layer.experts.named_parameters():
            moved = parameter.grad.abs().flatten(1).amax(dim=1) > 0
            assert torch.equal(moved.cpu(), mask), name

    @pytest.mark.parametrize("dispatch", WAYS)
    @pytest.mark.parametrize("kind", ["standard", "attention"])
    def test_no_tokens(self, device, dispatch, kind):
        if dispatch == "grouped_mm":
            skip_kind(kind)
        skip_without(device, torch.float32, dispatch)
        layer = layer_of(device, torch.float32, dispatch, kind=kind)
        x = torch.empty(2, 0, 32, device=device, requires_grad=True)
        layer(x).sum().backward()
        with torch.no_grad():
            assert layer(x).shape == x.grad.shape == (2, 0, 32)
        assert layer.computed.sum().item() == 0

    def test_slots_gradcheck(self, device):
        layer = layer_of(device, torch.float64, "slots", 4, 5, num_experts=3)
        x = torch.randn(7, 4, dtype=torch.float64, device=device, requires_grad=True)
        assert torch.autograd.gradcheck(layer, (x,))
        assert layer.path_taken == "slots"


class TestChoice:
    """Which path is taken, and why the others are not."""

    ACCELERATOR = Batch(torch.device("cuda"), torch.float32, 16, 2)
    ON_CPU = Batch(torch.device("cpu"), torch.float32, 16, 2)

    def refusals(self, **reasons):
        return {name: functools.partial(reasons.get, name) for name in ("grouped_mm", "slots")}

    def test_the_first_that_is_not_refused(self):
        assert choose(self.ACCELERATOR, "auto", self.refusals()) == Path("grouped_mm")
        path = choose(self.ACCELERATOR, "auto", self.refusals(grouped_mm="no kernel"))
        assert path == Path("slots", "no kernel")  # computes more than it must
        path = choose(self.ACCELERATOR, "auto", self.refusals(grouped_mm="a", slots="b"))
        assert path == Path("segments", "a; b; one wait for the device per call", synchronises=True)

    def test_whose_gradient_is_wanted(self, device):
        layer = layer_of(device, torch.float32, "auto")
        x, weights = torch.zeros(3, 32, device=device), torch.zeros(3, 2, device=device)
        with torch.no_grad():
            assert not Batch.from_tensors(x, weights, 2, layer.experts).gradient
        assert Batch.from_tensors(x, weights, 2, layer.experts).gradient
        layer.experts.requires_grad_(False)
        assert not Batch.from_tensors(x, weights, 2, layer.experts).gradient
        weights.requires_grad_()  # the router learns, the experts do not
        assert Batch.from_tensors(x, weights, 2, layer.experts).gradient
        assert Batch.from_tensors(x.requires_grad_(), None, 2, layer.experts).gradient

    def test_autocast_decides_what_is_multiplied(self, device):
        bank, bf16 = layer_of(device, torch.float32, "auto").experts, torch.bfloat16
        given = {torch.float32: bf16, bf16: bf16, torch.float64: torch.float64}
        with torch.autocast(device.type, bf16):
            for dtype, taken in given.items():
                x = torch.zeros(3, 32, dtype=dtype, device=device)
                assert Batch.from_tensors(x, None, 2, bank).dtype == taken
                assert Batch.from_tensors(x.to("meta"), None, 2, bank).dtype == dtype

    def test_on_the_cpu_asking_is_free(self):
        assert choose(self.ON_CPU, "auto", self.refusals()) == Path("segments")
        assert choose(self.ON_CPU, "slots", self.refusals()) == Path("slots")
        path = choose(self.ACCELERATOR, "segments", self.refusals())
        assert path == Path("segments", synchronises=True)

    def test_a_name_is_used_or_refused(self):
        with pytest.raises(RuntimeError, match=r"'slots' cannot be used: too many; use 'auto'"):
            choose(self.ACCELERATOR, "slots", self.refusals(slots="too many"))

    def test_slots_are_for_few_tokens(self, device):
        layer = layer_of(device, torch.float32, "slots")
        assert layer(torch.randn(FEW_ROWS, 32, device=device)).shape == (FEW_ROWS, 32)
        with pytest.raises(RuntimeError, match="64 tokens at most; these are 65"):
            layer(torch.randn(FEW_ROWS + 1, 32, device=device))

    def test_the_kernel_is_refused_with_a_reason(self):
        few = Batch(torch.device("cpu"), torch.float32, FEW_ROWS * 4, 2)
        with pytest.raises(
            RuntimeError, match=r"cannot be used: triton needs amd or nvidia; .*cpu"
        ):
            layer_of("cpu", torch.float32, "triton").experts.path(few, "triton")
        dropping = layer_of("cpu", torch.float32, "triton", expert_dropout=0.1).train()
        with pytest.raises(RuntimeError, match="triton has no dropout"):
            dropping.experts.path(few, "triton")
        assert "amd or nvidia" in why_no_kernel(few, 8)
        spread = dataclasses.replace(few, spread=True)
        assert "one process" in why_no_kernel(spread, 8)
        with torch.autocast("cpu", torch.bfloat16):
            assert "autocast" in why_no_kernel(few, 8)

    @interpreter.needs_triton
    def test_the_kernel_is_not_for_weights_that_it_reads_slowly(self, monkeypatch):
        monkeypatch.setattr(paths, "hardware_of", lambda device: Hardware.nvidia((9, 0)))
        few = Batch(torch.device("cpu"), torch.bfloat16, 16, 2)
        up, down = torch.ones(8, 64, 32), torch.ones(8, 32, 64)
        assert why_no_kernel(few, 8, up, down, None) is None
        assert "transposed" in why_no_kernel(few, 8, down.mT, down)
        assert "multiples of 16" in why_no_kernel(few, 8, up[..., :20], down)
        assert why_no_kernel(few, 8, up[..., :20], down, by_name=True) is None
        odd = layer_of("cpu", torch.bfloat16, "auto", 24, 8).eval().experts
        monkeypatch.setattr(banks, "why_not", lambda *_, **__: "no grouped_mm")
        there = dataclasses.replace(few, device=torch.device("cuda"))
        path = odd.path(there, "auto")
        assert path.name == "slots"
        assert "multiples of 16" in path.fallback
        assert odd.path(there, "triton") == Path("triton")

    def test_experts_over_processes(self):
        bank = layer_of("meta", torch.float32, "auto", 6, 10).experts
        spread = Batch(torch.device("meta"), torch.float32, 16, 2, spread=True)
        path = moe.ExpertParallelism.with_synchronisation(bank.path(spread, "auto"), spread.device)
        assert path.name == "segments"
        assert path.synchronises
        assert "all experts in one process" in path.fallback
        assert "sizes of its messages" in path.fallback
        free = moe.ExpertParallelism.with_synchronisation(Path("segments"), torch.device("cpu"))
        assert free == Path("segments")


@interpreter.needs_triton
class TestOurKernel:
    """The registry's Triton kernel: on the device with CUDA, else in Triton's interpreter."""

    @pytest.mark.parametrize("kind", ["standard", "glam", "switch"])
    @pytest.mark.parametrize("use_bias", [True, False])
    def test_equals_the_reference(self, device, kind, use_bias):
        layer = layer_of(device, torch.float32, "auto", kind=kind, use_bias=use_bias).eval()
        x = torch.randn(21, 32, device=device)
        kernel = Kernel(
            "moe_experts", "here", functools.partial(interpreter.run, "experts.in_triton")
        )
        with torch.no_grad():
            result = by_kernel(layer.experts, x, layer.router(x), kernel, Path("triton"))
        assert relative_error(result.output, ref.dense_moe(layer, x)) <= TOLERANCE[torch.float32]
        chosen = layer.router(x)["expert_indices"].flatten().cpu()
        assert torch.equal(result.counts.cpu(), torch.bincount(chosen, minlength=8))
        assert result.dropped.item() == 0

    @CUDA
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_is_taken_by_name(self, device, dtype):
        layer = layer_of(device, dtype, "triton")
        ref.assert_matches_reference(layer, torch.randn(64, 32, device=device, dtype=dtype))
        assert layer.path_taken == "triton"

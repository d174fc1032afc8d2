"""Passes that are kept only if they are faster: the rule, and that measuring changes no number.

The models advance a fake clock, so the measured times are known. One test of each kind uses the
real clock and checks no time.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools

import pytest
import torch
from torch import Tensor, nn

from benchmarks.optimisation_levels import same_operators
from suites.backend_models import AMPERE, TURING, bottleneck_resnet, in_float64, mlp, resnet
from suites.numerics import Clock, assert_close
from torchbridge import passes
from torchbridge.backends import CPUBackend, create_backend, optimise
from torchbridge.backends.optimise import LEVELS, passes_of
from torchbridge.hardware import Hardware
from torchbridge.passes import UNNOTICED, PassResult, Setting, for_speed, suffices
from torchbridge.timing import Ratio

CPU = torch.device("cpu")


class Timed(nn.Module):
    """A model [B, 4] -> [B, 4]; each call advances the clock by the next of `seconds`."""

    def __init__(self, clock: Clock, seconds: tuple[float, ...]) -> None:
        super().__init__()
        self.linear, self.clock, self.seconds = nn.Linear(4, 4), clock, itertools.cycle(seconds)
        self.calls = 0

    def __deepcopy__(self, memo: dict) -> Timed:
        twin = Timed(self.clock, (next(self.seconds),))
        twin.load_state_dict(self.state_dict())
        return twin

    def forward(self, x: Tensor) -> Tensor:
        """Advance the clock; return the linear layer's output."""
        self.clock.now += next(self.seconds)
        self.calls += 1
        return self.linear(x)


def taking(*seconds: float, scale: float = 1.0, **terms: bool):
    """Return a pass that sets the seconds of the model's calls and scales its weights."""

    @for_speed(**terms)
    def change(model: Timed, setting: Setting) -> passes.Result:
        if terms.get("in_place") is False:  # as torch.compile: a new model
            model = copy.deepcopy(model)
        model.seconds = itertools.cycle(seconds)
        with torch.no_grad():
            model.linear.weight.mul_(scale)
        return model, PassResult("change", True, f"now {seconds} s")

    return change


def tried(one, *, measure_s: float = 1.0, **changes) -> tuple[Timed, passes.Prepared]:
    """Apply a pass to a model with calls of 10 ms; return the model and the prepared one."""
    clock = Clock()
    model = Timed(clock, (0.010,)).eval()
    where = Setting(CPU, AMPERE, sample_inputs=(torch.ones(2, 4),), clock=clock)
    where = dataclasses.replace(where, measure_s=measure_s, **changes)
    return model, passes.apply(model, where, (one,), level="mine")


class TestErrors:
    def test_outputs_without_numbers_agree(self):
        empty = torch.zeros(3, 0)
        assert passes.relative_error((empty, torch.ones(2)), (empty, torch.ones(2))) == 0.0
        assert passes.relative_error(torch.tensor([torch.nan]), torch.ones(1)) == torch.inf


class TestEffect:
    @pytest.mark.parametrize(
        ("low", "high", "free", "costly"),
        [
            (1.2, 1.4, True, True),
            (1.0, 1.4, True, False),  # no gain is possible, and it is costly
            (0.9, 1.1, True, False),  # undecided
            (0.975, 0.99, True, False),  # slightly slower
            (0.96, 0.99, False, False),  # clearly slower
            (0.5, 0.7, False, False),
        ],
    )
    def test_the_rule(self, low, high, free, costly):
        effect = Ratio((low + high) / 2, low, high, 0.95, 20)
        assert suffices(effect, costly=False) is free
        assert suffices(effect, costly=True) is costly
        assert UNNOTICED == 0.97


class TestKeptOrNot:
    @pytest.mark.parametrize(("costly", "in_place"), [(False, True), (True, False)])
    def test_a_faster_one_is_kept(self, costly, in_place):
        model, prepared = tried(taking(0.005, costly=costly, in_place=in_place))
        result = prepared.result("change")
        assert result.applied
        assert 0 < result.seconds < 1.0  # of the real clock, without the measuring
        seen = result.effect
        assert (seen.median, seen.low, seen.high) == pytest.approx((2, 2, 2))
        assert result.evidence == "now (0.005,) s"
        assert (prepared.model is model) is in_place

    @pytest.mark.parametrize(("costly", "in_place"), [(False, True), (True, False)])
    def test_a_slower_one_is_not(self, costly, in_place):
        model, prepared = tried(taking(0.020, costly=costly, in_place=in_place))
        result = prepared.result("change")
        assert result.reason == "measured 0.500x [0.500, 0.500]: not kept"
        assert (result.applied, result.evidence) == (False, "")
        assert result.effect.median == pytest.approx(0.5)
        assert prepared.model is model
        assert next(model.seconds) == 0.010  # the original model is unchanged

    @pytest.mark.parametrize("costly", [False, True])
    def test_undecided_only_what_costs_nothing_is_kept(self, costly):
        _, prepared = tried(taking(*[0.008] * 4, *[0.013] * 4, costly=costly))
        result = prepared.result("change")
        assert result.effect.low < UNNOTICED < 1 < result.effect.high
        assert result.applied is not costly

    def test_wrong_numbers_are_never_timed(self):
        model, prepared = tried(taking(0.001, scale=1.5))
        result = prepared.result("change")
        assert result.effect is None
        assert result.reason.startswith("it would move the outputs by ")
        assert result.reason.endswith("(relative): not kept")
        assert next(model.seconds) == 0.010

    @pytest.mark.parametrize(
        "changes", [{"measure_s": 0.0}, {"sample_inputs": ()}], ids=["no time", "no inputs"]
    )
    def test_nothing_is_measured_unasked(self, changes):
        model, prepared = tried(taking(0.020), **changes)
        assert prepared.result("change").effect is None
        assert prepared.applied == ("change",)
        assert model.calls == 0

    def test_what_is_not_for_speed_is_not_measured(self):
        def slow(model, setting):
            model.seconds = itertools.cycle((1.0,))
            return model, PassResult("slow", True, "placed elsewhere")

        model, prepared = tried(slow)
        assert (prepared.applied, prepared.result("slow").effect) == (("slow",), None)
        assert model.calls == 0

    def test_each_is_measured_against_what_the_ones_before_left(self):
        clock = Clock()
        model = Timed(clock, (0.010,)).eval()
        where = Setting(CPU, AMPERE, sample_inputs=(torch.ones(2, 4),), clock=clock, measure_s=1.0)
        chosen = taking(0.005), taking(0.020), taking(0.004)
        prepared = passes.apply(model, where, chosen, level="mine")
        ratios = [result.effect.median for result in prepared.passes]
        assert ratios == pytest.approx([2.0, 0.25, 1.25])
        assert [result.applied for result in prepared.passes] == [True, False, True]

    def test_time_is_kept_to(self):
        _, prepared = tried(taking(0.005), measure_s=0.3)
        # at most a quarter for each warm-up, then quads of 30 ms in 0.3 s
        assert 8 <= prepared.result("change").effect.quads <= 13


class Moody(nn.Module):
    """A model that counts calls in a buffer, has dropout, and keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Count the call; return [B, 4, H - 2, W - 2] for x [B, 3, H, W]."""
        self.calls.add_(1)
        return self.drop(self.norm(self.conv(x)))


class TestNumbers:
    """Outputs with the real clock: they do not depend on the measured times."""

    @pytest.mark.parametrize("level", LEVELS)
    def test_outputs_are_those_of_the_kept_passes(self, level):
        x = torch.randn(2, 3, 12, 12)
        model = resnet(8, 1)
        plain, expected = copy.deepcopy(model), in_float64(model, x)
        backend = CPUBackend(hardware=Hardware.cpu())
        backend.compile_backend = "aot_eager"
        prepared = backend.prepare_model(model, level=level, sample_inputs=(x,), measure_s=0.01)
        kept = [
            one
            for one in passes_of(level, training=False)
            if one.__name__.removesuffix("_model") in prepared.applied
        ]
        where = backend.setting((x,))
        if "bfloat16" in prepared.applied:  # measured as faster, though not native
            where = dataclasses.replace(where, hardware=AMPERE)
        unmeasured = passes.apply(plain, where, kept, level=level).model
        with torch.no_grad():
            assert torch.equal(prepared.model(x), unmeasured(x))
            narrow = "bfloat16" in prepared.applied
            assert_close(prepared.model(x), expected, 3e-2 if narrow else 1e-5)

    @pytest.mark.parametrize("training", [False, True])
    def test_nothing_else_moves(self, training):
        model, x = Moody().train(training), torch.randn(4, 3, 8, 8)
        weight = model.conv.weight  # inference folds it into a new weight
        weight.grad = torch.full_like(weight, 3.0)
        before = copy.deepcopy(model.state_dict())
        where = Setting(CPU, AMPERE, training, (x,), compile_backend="aot_eager", measure_s=0.01)
        state = torch.get_rng_state()
        chosen = passes_of("aggressive", training=training)[1:]
        chosen = [one for one in chosen if one is not optimise.bfloat16]
        prepared = passes.apply(model, where, chosen, level="aggressive")
        assert prepared.result("channels_last").effect is not None
        assert torch.equal(torch.get_rng_state(), state)
        held = ("calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
        after = model.state_dict()
        same = [torch.equal(after[name], before[name]) for name in held if name in after]
        assert same == [True] * len(same)
        assert torch.equal(weight.grad, torch.full_like(weight, 3.0))
        assert all(p.grad is None for p in model.parameters() if p is not weight)

    def test_what_is_compiled_is_compared_without_dropout(self):
        """The compiled model is compared in eval mode, without dropout.

        In training mode two calls differ, and the running statistics would change.
        """
        model, x = Moody().train(), torch.randn(4, 3, 8, 8)
        where = Setting(CPU, AMPERE, True, (x,), compile_backend="aot_eager")
        compiled, result = optimise.compile_model(model, where)
        assert result.evidence.endswith("relative error 0.0e+00 against eager")
        assert compiled.training
        assert (model.calls.item(), model.norm.num_batches_tracked.item()) == (0, 0)

    def test_training_is_timed_with_its_backward(self):
        seen = []

        @for_speed()
        def watch(model, setting):
            model.conv.weight.register_hook(lambda gradient: seen.append(gradient.shape))
            return model, PassResult("watch", True, "gradients are watched")

        x = torch.randn(2, 3, 8, 8)
        for training in (False, True):
            where = Setting(CPU, AMPERE, training, (x,), measure_s=0.001)
            passes.apply(Moody().train(training), where, (watch,), level="mine")
            assert (len(seen) >= passes.LEAST_QUADS) is training

    def test_attention_is_timed_while_gradients_are_recorded(self):
        """Attention is timed with gradients enabled, because the pass helps only then.

        Without gradients the module is fused by torch.
        """
        assert optimise.sdpa.terms.gradients
        recorded = []

        class Noting(nn.MultiheadAttention):
            """Attention that notes whether gradients are enabled."""

            def forward(self, x, *others):
                recorded.append(torch.is_grad_enabled())
                return super().forward(x, *(others or (x, x)))

        model, x = Noting(16, 2, batch_first=True).eval(), torch.randn(2, 5, 16)
        where = Setting(CPU, AMPERE, sample_inputs=(x,), measure_s=0.01)
        passes.apply(model, where, (optimise.sdpa,), level="mine")
        assert sum(recorded) >= 4 * passes.LEAST_QUADS


class TestRealModels:
    """The model and the comparison of operators that the benchmark of levels uses."""

    def test_resnet_50_is_one(self):
        with torch.device("meta"):
            model, x = bottleneck_resnet().eval(), torch.empty(2, 3, 224, 224)
            assert model(x).shape == (2, 1000)
        assert sum(p.numel() for p in model.parameters()) == 25_557_032  # torchvision's count
        kinds = [type(module) for module in model.modules()]
        assert (kinds.count(nn.Conv2d), kinds.count(nn.BatchNorm2d)) == (53, 53)

    def test_the_same_operators_are_the_same_computation(self):
        model, x = resnet(4, 1).eval(), torch.randn(1, 3, 8, 8)
        assert same_operators(model, copy.deepcopy(model), x) > 10
        folded = copy.deepcopy(model).to(memory_format=torch.channels_last)
        assert same_operators(model, folded, x) == 0
        assert same_operators(torch.compile(model, backend="eager"), model, x) == 0


class TestLevels:
    def test_terms_of_the_passes(self):
        costly = {"bfloat16", "float16", "compile_model"}
        for name in ("fold_conv_bn", "channels_last", "sdpa", *costly):
            terms = getattr(optimise, name).terms
            assert (terms.costly, terms.in_place) == (name in costly, name != "compile_model")
        assert not hasattr(optimise.to_device, "terms")
        assert not hasattr(optimise.set_mode, "terms")

    def test_bfloat16_without_units_is_for_measuring_to_decide(self):
        """Without native bf16, bfloat16 is refused if unmeasured, and tried if measured."""
        where = Setting(CPU, Hardware.cpu(), sample_inputs=(torch.randn(4, 128),))
        result = passes.apply(mlp().eval(), where, (optimise.bfloat16,), level="mine").passes[0]
        assert result.reason.endswith("has no native bf16")
        where = dataclasses.replace(where, measure_s=0.02)
        model = mlp().eval()
        result = passes.apply(model, where, (optimise.bfloat16,), level="mine").passes[0]
        assert result.effect.quads >= passes.LEAST_QUADS
        dtype = torch.bfloat16 if result.effect.low > 1 else torch.float32
        assert (model[0].weight.dtype, result.applied) == (dtype, dtype is torch.bfloat16)
        if not result.applied:
            assert result.reason == f"measured {result.effect}: not kept"

    @pytest.mark.parametrize(
        ("name", "hardware"),
        [
            ("nvidia", AMPERE),
            ("nvidia", TURING),
            ("amd", Hardware.amd("gfx942")),
            ("intel", Hardware("intel", "Max", "pvc", "xpu")),
            ("tpu", Hardware.tpu("v5litepod-8")),
            ("cpu", Hardware.cpu()),
        ],
        ids=lambda value: getattr(value, "target", value),
    )
    def test_every_backend_measures(self, name, hardware):
        """Each backend measures its passes by its own rules, on the CPU."""
        backend = create_backend(name, hardware=hardware, device=CPU)
        backend.compile_backend = "aot_eager"
        model, x = resnet(4, 1), torch.randn(1, 3, 8, 8)
        prepared = backend.prepare_model(
            model, level="balanced", sample_inputs=(x,), measure_s=0.005
        )
        for result in prepared.passes:
            if getattr(getattr(optimise, result.name), "terms", None) and result.name != "sdpa":
                assert result.effect.quads >= passes.LEAST_QUADS

"""Each shared pass alone: its effect on the model and its numbers, and that its report is true."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

from suites.backend_models import (
    AMPERE,
    TURING,
    encoder,
    in_float64,
    mlp,
    resnet,
)
from suites.numerics import assert_close
from torchbridge import passes
from torchbridge.backends import optimise
from torchbridge.backends.optimise import LEVELS, passes_of
from torchbridge.hardware import Hardware
from torchbridge.passes import PassResult, Setting, difference

ALL = (
    optimise.to_device,
    optimise.set_mode,
    optimise.fold_conv_bn,
    optimise.channels_last,
    optimise.sdpa,
    optimise.bfloat16,
    optimise.float16,
    optimise.compile_model,
)


def setting(device, hardware=AMPERE, **changes) -> Setting:
    """Return the setting of inference that compiles without a C++ compiler."""
    return Setting(device, hardware, **{"compile_backend": "aot_eager", **changes})


class TestEvidence:
    @pytest.mark.parametrize(
        ("facts", "wrong"),
        [
            ({"applied": True}, "'fold' was applied: it needs evidence"),
            ({"applied": True, "evidence": "seen", "reason": "but"}, "and no reason"),
            ({"applied": False}, "'fold' was not applied: it needs a reason"),
            ({"applied": False, "evidence": "seen", "reason": "why"}, "no evidence"),
        ],
    )
    def test_claims_without_proof(self, facts, wrong):
        with pytest.raises(ValueError, match=wrong):
            PassResult("fold", **facts)

    def test_nothing_changed_is_nothing_applied(self):
        same = difference("fold", "2 norms", "2 norms", reason="none to fold")
        assert same == PassResult("fold", False, reason="none to fold")
        changed = difference("fold", "2 norms", "0 norms", reason="none to fold")
        assert changed == PassResult("fold", True, evidence="2 norms -> 0 norms")

    @pytest.mark.parametrize("one", ALL[:-1], ids=lambda one: one.__name__)
    def test_a_second_time_changes_nothing(self, one, device):
        x = torch.randn(2, 3, 8, 8, device=device)
        where = setting(device, sample_inputs=(x,))
        model, _ = one(resnet(8, 1).to(device).eval(), where)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        again, result = one(model, where)
        assert (again, result.applied) == (model, False)
        assert all(torch.equal(value, before[name]) for name, value in again.state_dict().items())

    @pytest.mark.parametrize("one", ALL, ids=lambda one: one.__name__)
    def test_a_model_without_anything_claims_nothing(self, one, device):
        model, result = one(nn.Identity().eval(), setting(device))
        assert type(model) is nn.Identity
        assert not result.applied
        assert len(result.reason) > 5

    def test_results_by_name_and_seconds(self, device):
        chosen = (optimise.set_mode, optimise.sdpa)
        prepared = passes.apply(mlp().to(device), setting(device), chosen, level="mine")
        assert (prepared.level, prepared.applied) == ("mine", ("set_mode",))
        assert prepared.result("sdpa").reason == "no torch.nn.MultiheadAttention"
        assert all(0 < result.seconds < 60 for result in prepared.passes)
        with pytest.raises(KeyError, match="no pass 'fold' was tried"):
            prepared.result("fold")


class TestToDeviceAndMode:
    def test_to_another_device(self):
        model, result = optimise.to_device(nn.BatchNorm2d(4), setting(torch.device("meta")))
        assert {t.device.type for t in model.state_dict().values()} == {"meta"}  # buffers too
        assert result.evidence == "5 tensor(s) on cpu -> 5 tensor(s) on meta"

    def test_mode_of_every_module(self, device):
        model = mlp()
        model[0].eval()
        model, result = optimise.set_mode(model, setting(device))
        assert result.evidence == (
            "1 module(s) evaluating, 3 module(s) training -> 4 module(s) evaluating"
        )
        _, result = optimise.set_mode(model, setting(device, training=True))
        assert all(module.training for module in model.modules())
        assert result.evidence.endswith("4 module(s) training")


class TestFoldConvBn:
    @pytest.mark.parametrize("dimensions", [1, 2, 3])
    def test_dimensions(self, dimensions, device):
        convolution = getattr(nn, f"Conv{dimensions}d")(3, 4, 3, stride=2)
        norm = getattr(nn, f"BatchNorm{dimensions}d")(4)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.2, 3)
        model = nn.Sequential(convolution, norm).to(device).eval()
        x = torch.randn(2, 3, *[9] * dimensions, device=device)
        expected = in_float64(model, x)
        folded, result = optimise.fold_conv_bn(model, setting(device))
        assert result.applied
        assert_close(folded(x), expected)

    def test_what_others_use_is_left(self, device):
        class Twice(nn.Module):
            """A model that also uses its convolution's output without the norm."""

            def __init__(self):
                super().__init__()
                self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

            def forward(self, x):
                y = self.conv(x)
                return y + self.bn(y)

        model, result = optimise.fold_conv_bn(Twice().to(device).eval(), setting(device))
        assert result.reason == "no batch norm to fold"
        assert isinstance(model.bn, nn.BatchNorm2d)

    def test_a_shared_convolution_is_left(self, device):
        convolution = nn.Conv2d(3, 3, 1)
        norms = [nn.BatchNorm2d(3) for _ in range(2)]
        model = nn.Sequential(convolution, norms[0], convolution, norms[1]).to(device).eval()
        _, result = optimise.fold_conv_bn(model, setting(device))
        assert not result.applied

    def test_untraceable_models_are_left(self, device):
        class Choosing(nn.Module):
            """A model with a branch on the numbers of its input."""

            def forward(self, x):
                return x if x.sum() > 0 else -x

        _, result = optimise.fold_conv_bn(Choosing().eval(), setting(device))
        assert result.reason.startswith("the model cannot be traced: TraceError")

    def test_training_and_batch_statistics_are_left(self, device):
        _, result = optimise.fold_conv_bn(resnet(), setting(device, training=True))
        assert result.reason == "training needs the batch's own statistics"
        own = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, track_running_stats=False))
        assert not optimise.fold_conv_bn(own.eval(), setting(device))[1].applied
        assert not optimise.fold_conv_bn(resnet().train(), setting(device))[1].applied


class TestChannelsLast:
    def test_numbers_and_layout(self, device):
        model, x = resnet().to(device).eval(), torch.randn(2, 3, 12, 12, device=device)
        expected = in_float64(model, x)
        moved, result = optimise.channels_last(model, setting(device))
        assert result.evidence.endswith("5 of 5 weight(s) channels-last")
        assert moved[0].weight.stride() == (27, 1, 9, 3)
        hidden = moved[:3](x)
        assert hidden.is_contiguous(memory_format=torch.channels_last)  # activations too
        assert_close(moved(x), expected)


class TestSdpa:
    def test_explicit_becomes_fused(self, device):
        model = nn.MultiheadAttention(32, 4, batch_first=True).to(device).eval()
        x = torch.randn(2, 6, 32, device=device)
        expected = copy.deepcopy(model).cpu().double()(*[x.cpu().double()] * 3)
        fused, result = optimise.sdpa(model, setting(device))
        assert result.evidence == (
            "1 module(s) by explicit softmax -> 1 module(s) by native_multi_head_attention"
        )
        output, weights = fused(x, x, x)
        assert_close(output, expected[0])
        assert_close(weights, expected[1])

    def test_encoder(self, device):
        model, x = encoder().to(device).eval(), torch.randn(2, 6, 32, device=device)
        expected = in_float64(model, x)
        fused, result = optimise.sdpa(model, setting(device))
        assert result.evidence.startswith("2 module(s)")
        assert not any(p.requires_grad for p in fused.layers[0].self_attn.parameters())
        assert fused.layers[0].linear1.weight.requires_grad  # only attention is frozen
        assert_close(fused(x), expected)

    def test_training_modules_stay_explicit(self, device):
        """The evidence describes what ran: in training mode the module stays explicit."""
        model = nn.MultiheadAttention(32, 4, batch_first=True).to(device).train()
        _, result = optimise.sdpa(model, setting(device))
        assert result.reason == "as before: 1 module(s) by explicit softmax"


class TestNarrow:
    def test_nested_and_whole_inputs(self, device):
        class Nested(nn.Module):
            """A model that takes and returns nested structures."""

            def __init__(self):
                super().__init__()
                self.embed, self.linear = nn.Embedding(5, 4), nn.Linear(4, 4)

            def forward(self, ids, *, extra):
                hidden = self.linear(self.embed(ids) + extra["bias"])
                return {"hidden": hidden, "ids": ids}

        narrow, _ = optimise.bfloat16(Nested().to(device).eval(), setting(device))
        ids = torch.tensor([1, 2], device=device)
        output = narrow(ids, extra={"bias": torch.ones(4, device=device)})
        assert output["hidden"].dtype == torch.float32
        assert output["ids"].dtype == torch.int64

    @pytest.mark.parametrize(
        ("one", "hardware", "dtype", "reason"),
        [
            (optimise.bfloat16, TURING, torch.float32, "nvidia sm_75 has no native bf16"),
            (optimise.bfloat16, AMPERE, torch.float64, "not a float32 model: 4 float64"),
            (optimise.float16, Hardware.amd("gfx000"), torch.float32, "amd gfx000 has no native"),
            (optimise.float16, TURING, torch.float32, "no sample inputs"),
        ],
    )
    def test_refusals(self, one, hardware, dtype, reason, device):
        model, result = one(mlp().to(dtype), setting(device, hardware))
        assert model[0].weight.dtype == dtype
        assert result.reason.startswith(reason)

    def test_float16_is_refused_where_it_overflows(self, device):
        model, x = mlp().to(device).eval(), torch.full((2, 128), 1e4, device=device)
        nn.init.constant_(model[0].weight, 1.0)  # 128 * 1e4 is over 65504
        kept, result = optimise.float16(model, setting(device, TURING, sample_inputs=(x,)))
        assert kept[0].weight.dtype == torch.float32
        assert result.reason == "it would move the outputs by inf (relative)"


class TestCompile:
    def test_wrong_numbers_are_refused(self, device):
        def wrong(graph, _):
            return lambda *inputs: [1.01 * output for output in graph(*inputs)]

        x = torch.randn(4, 128, device=device)
        model = mlp().to(device)
        where = setting(device, compile_backend=wrong, sample_inputs=(x,))
        kept, result = optimise.compile_model(model, where)
        assert kept is model
        assert result.reason == "compiled outputs are 1.0e-02 (relative) away from eager"

    def test_a_compiler_that_fails(self, device):
        def broken(graph, _):
            raise RuntimeError("no C++ compiler")

        where = setting(
            device, compile_backend=broken, sample_inputs=(torch.randn(4, 128, device=device),)
        )
        model = mlp().to(device)
        kept, result = optimise.compile_model(model, where)
        assert kept is model
        assert "no C++ compiler" in result.reason

    def test_nothing_compiled_is_not_applied(self, device):
        x = torch.randn(4, 128, device=device)
        where = setting(device, sample_inputs=(x,))
        with torch.compiler.set_stance("force_eager"):
            kept, result = optimise.compile_model(mlp().to(device), where)
        assert result.reason == "torch.compile compiled no graph"
        assert type(kept) is nn.Sequential

    def test_inductor(self, device):
        model, x = mlp().to(device).eval(), torch.randn(8, 128, device=device)
        expected = in_float64(model, x)
        where = dataclasses.replace(setting(device, sample_inputs=(x,)), compile_backend="inductor")
        compiled, result = optimise.compile_model(model, where)
        if not result.applied:
            assert result.reason.startswith("inductor cannot"), result.reason  # no "it is wrong"
            pytest.skip(f"torch.compile has no inductor here: {result.reason}")
        assert_close(compiled(x), expected)


class TestLevels:
    @pytest.mark.parametrize("training", [False, True])
    def test_each_level_adds_to_the_one_below(self, training):
        chosen = [passes_of(level, training=training) for level in LEVELS]
        assert set(chosen[0]) < set(chosen[1]) < set(chosen[2])
        assert chosen[2][-1] is optimise.compile_model

    def test_training_keeps_precision_and_structure(self):
        chosen = passes_of("aggressive", training=True)
        assert not {optimise.bfloat16, optimise.fold_conv_bn, optimise.sdpa} & set(chosen)

    def test_unknown_level(self):
        with pytest.raises(ValueError, match="conservative, balanced, aggressive, got 'extreme'"):
            passes_of("extreme", training=False)

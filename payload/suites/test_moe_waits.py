"""Paths that claim no synchronisation never make the host wait, forward and backward."""

from __future__ import annotations

import pytest
import torch

from suites.moe_reference import CUDA, KINDS, layer_of, skip_kind, skip_without
from suites.numerics import TOLERANCE, relative_error
from torchbridge.moe import MoELayer, Path
from torchbridge.moe.dispatch import path_for
from torchbridge.moe.grouped import forbid_synchronisation, why_not


class TestNothingWaits:
    """Forward and backward of each path that claims no synchronisation."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("mode", ["grouped_mm", "slots", "capacity"])
    def test_on_tensors_without_values(self, kind, mode):
        layer, x = meta_layer(kind, mode)
        output, aux = layer(x, return_router_logits=True)
        (output.sum() + aux["load_balance_loss"] + aux["router_z_loss"]).backward()
        assert output.shape == x.grad.shape == x.shape
        assert layer.path_taken == ("capacity_slots" if mode == "capacity" else mode)
        with torch.no_grad():
            assert layer.eval()(x).shape == x.shape

    def test_segments_would(self):
        layer, x = meta_layer("standard", "segments")
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            layer(x)
        assert path_for(layer.experts, x, layer.config) == Path("segments", synchronises=True)

    def test_masks_of_the_device(self):
        layer, x = meta_layer("standard", "slots")
        mask = torch.ones(48, 8, dtype=torch.bool, device="meta")
        assert layer(x, mask).shape == x.shape
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            bool(mask.all())  # a check on the host

    @pytest.mark.parametrize("mode", ["grouped_mm", "slots", "capacity"])
    def test_is_one_graph_for_the_compiler(self, mode):
        """The layer is one graph for the compiler; reading a number on the host would break it."""
        dtype = torch.bfloat16 if mode == "grouped_mm" else torch.float32
        skip_without(torch.device("cpu"), dtype, mode)
        layer = layer_in(mode, "standard", "cpu", dtype)
        x = torch.randn(48, 32, dtype=dtype)
        torch.compiler.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for tokens in (40, 33):  # one graph serves all sizes
            assert relative_error(compiled(x[:tokens]), layer(x[:tokens])) <= TOLERANCE[dtype]
        outputs = [work(x) for work in (layer, compiled)]
        assert relative_error(*outputs) <= TOLERANCE[dtype]
        gradients = [torch.autograd.grad(o.square().sum(), [*layer.parameters()]) for o in outputs]
        pairs = zip(*gradients, strict=True)
        assert all(relative_error(a, b) <= 2 * TOLERANCE[dtype] for a, b in pairs)

    @pytest.mark.parametrize("kind", ["standard", "glam", "attention", "hash"])
    def test_is_exported_for_any_number_of_tokens(self, kind):
        layer = layer_of("cpu", torch.float32, "auto", kind=kind).eval()
        tokens = torch.export.Dim("tokens", min=2, max=4096)
        x = torch.randn(70, 32)
        with torch.no_grad():
            exported = torch.export.export(layer, (x,), dynamic_shapes=({0: tokens},))
            for count in (70, 3, 200):
                x = torch.randn(count, 32)
                output = exported.module()(x)
                assert relative_error(output, layer(x)) <= TOLERANCE[torch.float32]
        layer(x)
        assert layer.path_taken == "segments"  # after the export, in eager mode

    def test_what_the_compiler_cannot_trace_is_refused(self):
        if "has no grouped_mm" in (why_not(torch.device("meta"), torch.float32, (16,)) or ""):
            pytest.skip("this torch has no grouped_mm")
        layer = layer_in("grouped_mm", "standard", "meta", torch.float32)
        x = torch.empty(48, 32, device="meta")
        reason = why_not(x.device, x.dtype, (32, 64))
        if reason is None:
            assert layer(x).shape == x.shape
        else:
            with pytest.raises(RuntimeError, match=r"'grouped_mm' cannot be used.*be traced"):
                layer(x)

    @CUDA
    @pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: str(d).removeprefix("torch."))
    @pytest.mark.parametrize("mode", ["grouped_mm", "triton", "slots", "capacity"])
    def test_on_cuda(self, dtype, mode):
        kinds = [k for k in KINDS if k != "attention" or mode in ("slots", "capacity")]
        for layer in [layer_in(mode, kind, "cuda", dtype) for kind in kinds]:
            x = torch.randn(48, 32, device="cuda", dtype=dtype, requires_grad=mode != "triton")
            layer.requires_grad_(mode != "triton")
            skip_refused(layer, x)
            layer(x)  # warm: libraries make their handles, kernels are compiled
            with forbid_synchronisation(x.device):
                output = layer(x)
                if mode != "triton":
                    output.sum().backward()
            assert output.shape == x.shape

    @CUDA
    def test_cuda_would_say_so(self):
        layer = layer_in("segments", "standard", "cuda", torch.float32)
        x = torch.randn(48, 32, device="cuda")
        with pytest.raises(RuntimeError, match="synchronizing"), forbid_synchronisation(x.device):
            layer(x)


def skip_refused(layer: MoELayer, x: torch.Tensor) -> None:
    """Skip the test with the reason if the layer's path is refused for x."""
    try:
        path_for(layer.experts, x, layer.config)
    except RuntimeError as refused:
        pytest.skip(str(refused))


def layer_in(mode: str, kind: str, device, dtype) -> MoELayer:
    """Return a layer that computes by a path, or in capacity mode."""
    way = {"drop_tokens": True} if mode == "capacity" else {}
    return layer_of(device, dtype, "auto" if way else mode, kind=kind, **way)


def meta_layer(kind: str, mode: str) -> tuple[MoELayer, torch.Tensor]:
    """Return a layer on the meta device and 48 tokens; skip the test if there is no such path."""
    if mode == "grouped_mm":
        skip_kind(kind)
        if reason := why_not(torch.device("meta"), torch.bfloat16, (32, 64)):
            pytest.skip(reason)
    layer = layer_in(mode, kind, "meta", torch.bfloat16)
    return layer, torch.randn(48, 32, device="meta", dtype=torch.bfloat16, requires_grad=True)

"""A captured layer: what surrounds the graph, with graphs that replay by running once more."""

from __future__ import annotations

import pytest
import torch

from suites.numerics import TOLERANCE, relative_error
from suites.recorded_graphs import RepeatedGraphs
from torchbridge import moe
from torchbridge.moe import CapturedLayer, MoEConfig, MoELayer

TOKENS, HIDDEN = 16, 32
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def layer_of(device="cpu", kind="standard", **settings) -> MoELayer:
    return moe.create_moe_layer(kind, HIDDEN, 64, config=MoEConfig(**settings)).to(device).eval()


def captured(layer: MoELayer, shape=(TOKENS, HIDDEN)) -> CapturedLayer:
    """By the stand-in, for float32 on the CPU."""
    return CapturedLayer(layer, torch.zeros(shape), graphs=RepeatedGraphs())


class TestReplay:
    @pytest.mark.parametrize("kind", list(moe.LAYERS))
    @pytest.mark.parametrize("drop_tokens", [False, True])
    def test_every_batch_is_computed(self, kind, drop_tokens):
        layer = layer_of(kind=kind, drop_tokens=drop_tokens, capacity_factor=0.5, min_capacity=0)
        graph = captured(layer, (2, 8, HIDDEN))
        batches = [torch.randn(2, 8, HIDDEN) for _ in range(3)]
        outputs = [graph(x) for x in batches]  # of memory of their own: none overwrites another
        with torch.no_grad():
            assert all(torch.equal(y, layer(x)) for x, y in zip(batches, outputs, strict=True))

    def test_input_is_copied(self):
        graph = captured(layer_of())
        x = torch.randn(TOKENS, HIDDEN, requires_grad=True)
        output = graph(x)
        with torch.no_grad():
            x.zero_()
        assert not output.requires_grad
        assert torch.equal(graph(torch.zeros(TOKENS, HIDDEN)), graph(x))

    @pytest.mark.parametrize("drop_tokens", [False, True])
    def test_counters_count_replays_alone(self, drop_tokens):
        settings = {"drop_tokens": drop_tokens, "capacity_factor": 0.5, "min_capacity": 0}
        layer, plain = layer_of(**settings), layer_of(**settings)
        plain.load_state_dict(layer.state_dict())
        first, *batches = (torch.randn(TOKENS, HIDDEN) + 1 for _ in range(4))
        for one in (layer, plain):
            one(first)  # before the capture: it is kept
        graph = captured(layer)
        assert torch.equal(layer.computed, plain.computed)
        for x in batches:
            graph(x)
            plain(x)
            assert torch.equal(layer.computed, plain.computed)
            assert torch.equal(layer.dropped, plain.dropped)
        assert int(layer.computed.sum() + layer.dropped) == 4 * TOKENS * 2
        assert (layer.dropped > 0) == drop_tokens
        layer.reset_expert_utilization()
        graph(first)
        assert int(layer.computed.sum() + layer.dropped) == TOKENS * 2

    def test_weights_may_change_in_place(self):
        layer, other = layer_of(), layer_of()
        graph = captured(layer)
        x = torch.randn(TOKENS, HIDDEN)
        layer.load_state_dict(other.state_dict())
        with torch.no_grad():
            assert torch.equal(graph(x), other(x))


class TestRefusals:
    def test_the_cpu(self):
        with pytest.raises(
            RuntimeError, match=r"cannot be captured: .* needs a CUDA device, not cpu"
        ):
            CapturedLayer(layer_of(), torch.zeros(TOKENS, HIDDEN))

    def test_training(self):
        with pytest.raises(RuntimeError, match=r"in training; call eval\(\) first"):
            captured(layer_of().train())

    def test_a_way_that_waits(self):
        layer = layer_of("meta", dispatch="segments")
        x = torch.empty(TOKENS, HIDDEN, device="meta")
        with pytest.raises(RuntimeError, match="by segments the host waits for the device"):
            CapturedLayer(layer, x, graphs=RepeatedGraphs())

    def test_too_many_tokens_for_slots(self):
        layer = MoELayer(MoEConfig(), HIDDEN, 64, expert_type="attention").to("meta").eval()
        x = torch.empty(65, HIDDEN, device="meta")
        with pytest.raises(
            RuntimeError, match=r"64 tokens at most; these are 65.*waits for the dev"
        ):
            CapturedLayer(layer, x, graphs=RepeatedGraphs())

    def test_experts_over_processes(self):
        layer = layer_of("meta", expert_parallelism=True)
        layer.parallel.placement = moe.ExpertPlacement(8, 2, 0)
        x = torch.empty(TOKENS, HIDDEN, device="meta")
        with pytest.raises(RuntimeError, match="sizes of its messages"):
            CapturedLayer(layer, x, graphs=RepeatedGraphs())

    def test_what_fails_while_recording(self):
        class Failing(RepeatedGraphs):
            def record(self, work):
                work()
                raise RuntimeError("operation not permitted when stream is capturing")

        layer = layer_of()
        with pytest.raises(RuntimeError, match="cannot be captured: operation not permitted"):
            CapturedLayer(layer, torch.zeros(TOKENS, HIDDEN), graphs=Failing())
        assert int(layer.computed.sum()) == 0  # the attempt is not counted

    @pytest.mark.parametrize(
        "x",
        [
            torch.zeros(TOKENS - 1, HIDDEN),
            torch.zeros(1, TOKENS, HIDDEN),
            torch.zeros(TOKENS, HIDDEN, dtype=torch.float64),
            torch.zeros(TOKENS, HIDDEN, device="meta"),
        ],
    )
    def test_another_kind_of_batch(self, x):
        layer = layer_of()
        graph = captured(layer)
        with pytest.raises(ValueError, match=r"captured for \(16, 32\) float32 on cpu, got"):
            graph(x)
        assert int(layer.computed.sum()) == 0

    def test_a_layer_that_is_another_now(self):
        x = torch.zeros(TOKENS, HIDDEN)
        layer = layer_of()
        graph = captured(layer)
        layer.train()
        with pytest.raises(RuntimeError, match="in training now"):
            graph(x)
        layer.eval()
        graph(x)
        layer.experts.up = torch.nn.Parameter(layer.experts.up.detach().clone())
        with pytest.raises(RuntimeError, match="have moved since the capture"):
            graph(x)


@CUDA
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dispatch", ["auto", "slots"])
class TestOnCuda:
    def test_replays_equal_calls(self, dtype, dispatch):
        layer = layer_of("cuda", dispatch=dispatch).to(dtype)
        graph = CapturedLayer(layer, torch.zeros(TOKENS, HIDDEN, device="cuda", dtype=dtype))
        batches = [torch.randn(TOKENS, HIDDEN, device="cuda", dtype=dtype) for _ in range(3)]
        outputs = [graph(x) for x in batches]
        assert int(layer.computed.sum()) == 3 * TOKENS * 2
        with torch.no_grad():
            for x, output in zip(batches, outputs, strict=True):
                assert relative_error(output, layer(x)) <= TOLERANCE[dtype]
        assert int(layer.computed.sum()) == 6 * TOKENS * 2

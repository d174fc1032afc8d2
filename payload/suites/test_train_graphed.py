"""Captured training steps: what is captured, what is refused, and that losses equal the loop's.

On the CPU a fake records (`recorded_graphs`); CUDA graphs are used on a CUDA device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from importlib import import_module

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from suites.numerics import assert_close, needs_cuda
from suites.recorded_graphs import TapeGraphs
from suites.train_reference import BF16, FP16, NO_AMP, batches, network, problem, weights
from torchbridge.hardware import Hardware
from torchbridge.train import TensorBatches, TrainConfig, Trainer, checkpoint, fit
from torchbridge.train.graphed import WARM_UP, why_not_graphed, why_not_worth_it
from torchbridge.train.watch import Watch

CPU = torch.device("cpu")
FAST = Hardware.nvidia((8, 9), units=58, clock_hz=2.04e9)
graphed_module = import_module("torchbridge.train.graphed")
RATE = 2**-7  # a float32, so that the rate on the device is the same number
CONFIG = TrainConfig(epochs=3, learning_rate=RATE, graphed=True, clip_norm=1.0, seed=3)
ALL = pytest.mark.parametrize("hardware", [NO_AMP, BF16, FP16], ids=["float32", "bf16", "fp16"])


class BrokenGraphs(TapeGraphs):
    """A fake of graphs that refuses every recording, for an unforeseen reason."""

    def record(self, work):
        raise RuntimeError("it cannot be captured")


def reading(outputs, targets):
    """Return a loss that reads a number on the host."""
    return F.cross_entropy(outputs, targets) * float(outputs.detach().mean() < 1e9)


def uneven(size: int = 32) -> TensorBatches:
    """Return batches of 240 samples, whose last one is smaller: 16 samples if `size` is 32."""
    return TensorBatches(*problem(CPU, 240), size, seed=7)


def plain(config: TrainConfig = CONFIG) -> TrainConfig:
    """Return the config without graphs."""
    return dataclasses.replace(config, graphed=False)


def recording(steps: int, **options) -> Trainer:
    """Return a trainer of a small network whose steps are captured."""
    options = {"hardware": NO_AMP, "device": CPU, "graphs": TapeGraphs(), **options}
    return Trainer(network(), CONFIG, steps=steps, **options)


class TestSameNumbers:
    @ALL
    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_losses_and_weights_bit_for_bit(self, hardware, accumulate):
        """Losses and weights are equal bit for bit.

        The run has dropout, clipping, shuffling and a smaller last batch in each epoch.
        """
        config = dataclasses.replace(CONFIG, accumulate=accumulate)
        loop, graphed, graphs = network(0.3), network(0.3), TapeGraphs()
        options = {"hardware": hardware, "device": CPU}
        expected = fit(loop, uneven(), plain(config), **options)
        got = fit(graphed, uneven(), config, graphs=graphs, **options)
        assert got.losses == expected.losses
        assert got.gradient_norms == expected.gradient_norms
        for a, b in zip(graphed.parameters(), loop.parameters(), strict=True):
            assert torch.equal(a, b)
        whole = 3 * (7 if accumulate == 1 else 3)  # groups of whole batches
        assert (graphs.recordings, graphs.asides) == (1, WARM_UP + accumulate - 1)
        assert (got.replays, got.ungraphed) == (whole - WARM_UP, None)

    def test_rate_is_read_at_every_step(self):
        settings = {"schedule": "cosine", "warmup_steps": 6}
        config = dataclasses.replace(CONFIG, **settings)
        loop, graphed = network(), network()
        options = {"hardware": NO_AMP, "device": CPU}
        expected = fit(loop, uneven(), plain(config), **options)
        got = fit(graphed, uneven(), config, graphs=TapeGraphs(), **options)
        assert got.replays > 15
        assert got.losses == pytest.approx(expected.losses, rel=1e-6)
        for a, b in zip(graphed.parameters(), loop.parameters(), strict=True):
            assert_close(a, b, 1e-5)

    def test_overflow_skips_a_replayed_step(self):
        x, y = problem(CPU, 32)
        trainer = recording(8, hardware=FP16)
        for _ in range(WARM_UP + 2):
            trainer.step([(x, y)])
        before, scale = weights(trainer.model), trainer.scaler.get_scale()
        trainer.step([(x * 1e6, y)])  # beyond float16
        assert trainer.result().replays == 3
        pairs = zip(before, trainer.model.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert trainer.scaler.get_scale() == scale / 2
        trainer.step([(x, y)])
        assert not torch.equal(before[0], next(trainer.model.parameters()))

    def test_gradients_are_those_of_the_last_step(self):
        data = list(uneven())
        made = [Trainer(network(), plain(), steps=12, hardware=NO_AMP, device=CPU)]
        made.append(recording(12))
        for batch in [*data, data[0]]:  # replays, the smaller one, a replay again
            for trainer in made:
                trainer.step([batch])
            loop, graphed = (trainer.model.parameters() for trainer in made)
            assert all(torch.equal(a.grad, b.grad) for a, b in zip(graphed, loop, strict=True))

    def test_resumes_to_the_bit(self, tmp_path):
        options = {"hardware": NO_AMP, "device": CPU}
        whole = network(0.3)
        expected = fit(whole, uneven(), CONFIG, graphs=TapeGraphs(), **options)
        options["checkpoint_path"] = tmp_path / "run.pt"
        fit(network(0.3), uneven(), CONFIG, graphs=TapeGraphs(), stop_at=10, **options)
        second = network(0.3, seed=99)
        result = fit(second, uneven(), CONFIG, graphs=TapeGraphs(), **options)
        assert result.losses == expected.losses
        assert result.replays == 3 * 7 - 9 - WARM_UP  # nine whole batches among the first ten
        for a, b in zip(second.parameters(), whole.parameters(), strict=True):
            assert torch.equal(a, b)

    def test_loading_gives_a_recording_up(self, tmp_path):
        """Loading a checkpoint drops the graph, which would use the optimizer's former state."""
        data = list(uneven())[:6]
        trainer = recording(12)
        for batch in data[:5]:
            trainer.step([batch])
        checkpoint.save(trainer, tmp_path / "run.pt")
        trainer.step([data[5]])
        expected = weights(trainer.model)
        checkpoint.load(trainer, tmp_path / "run.pt")
        assert trainer.ungraphed == f"no shape of batches came {WARM_UP + 1} times"
        trainer.step([data[5]])
        for a, b in zip(expected, trainer.model.parameters(), strict=True):
            assert torch.equal(a, b)


class TestWhatIsRecorded:
    def test_a_recording_computes_nothing(self):
        """Each batch counts once: the captured step is not computed until its first replay."""
        graphs = TapeGraphs()
        trainer = recording(5, graphs=graphs)
        for batch in list(uneven())[:5]:
            trainer.step([batch])
        taken = {int(state["step"]) for state in trainer.optimizer.state.values()}
        assert (taken, graphs.recordings, trainer.result().replays) == ({5}, 1, 2)

    def test_losses_are_kept_apart(self):
        """Losses are copies: the graph writes every step's loss to the same memory."""
        trainer = recording(7)
        for batch in list(uneven())[:7]:
            trainer.step([batch])
        assert len({loss.data_ptr() for loss in trainer.losses}) == 7
        assert len(set(trainer.result().losses)) == 7

    def test_batches_are_not_kept(self):
        """The graph copies its inputs: the caller may overwrite a batch after the step."""
        x, y = problem(CPU, 32)
        options = {"steps": 8, "hardware": NO_AMP, "device": CPU}
        trainer = Trainer(network(), CONFIG, graphs=TapeGraphs(), **options)
        loop = Trainer(network(), plain(), **options)
        for step in range(8):
            batch = (x + step).clone(), y.clone()
            trainer.step([batch])
            loop.step([((x + step).clone(), y)])
            batch[0].zero_(), batch[1].zero_()
        assert trainer.result().losses == loop.result().losses


class TestRefusals:
    def reason(self, graphs=None, *, scaled=False, **settings):
        """Return why no step can be captured on the CPU with these settings."""
        return why_not_graphed(TrainConfig(**settings), graphs, CPU, scaled=scaled)

    def test_reasons(self):
        graphs = TapeGraphs()
        assert self.reason(graphs) is None
        assert self.reason(graphs, scaled=True) is None
        assert self.reason(graphs, graphed=False) == "not asked for"
        assert self.reason() == "a CUDA graph needs a CUDA device, not cpu"
        assert self.reason(graphs, compile_backend="eager").startswith("torch.compile is asked")
        waits = "scaled losses make the host wait for the device unless AdamW is fused"
        assert self.reason(graphs, scaled=True, fused=False) == waits

    def test_asked_for_and_refused(self):
        reason = "graphed was asked for: a CUDA graph needs a CUDA device, not cpu; use graphed=No"
        with pytest.raises(ValueError, match=reason):
            Trainer(network(), TrainConfig(graphed=True), hardware=NO_AMP, device=CPU)

    @pytest.mark.parametrize("graphed", [None, True])
    def test_changing_shapes(self, graphed):
        x, y = problem(CPU, 64)
        data = [(x[:n], y[:n]) for n in (8, 16, 24, 8, 16, 24)]
        config = TrainConfig(epochs=3, graphed=graphed, learning_rate=RATE)
        options = {"hardware": NO_AMP, "device": CPU}
        if graphed:
            with pytest.raises(ValueError, match="batches come in more than 2 shapes; use"):
                fit(network(), data, config, graphs=TapeGraphs(), **options)
            return
        result = fit(network(), data, config, graphs=TapeGraphs(), **options)
        assert (result.ungraphed, result.replays) == ("batches come in more than 2 shapes", 0)
        assert result.losses == fit(network(), data, plain(config), **options).losses

    @pytest.mark.parametrize("graphed", [None, True])
    @pytest.mark.parametrize(
        ("graphs", "loss"), [(TapeGraphs, reading), (BrokenGraphs, F.cross_entropy)]
    )
    def test_a_step_that_cannot_be_recorded(self, graphed, graphs, loss):
        """If capturing fails for an unforeseen reason, training continues without a graph.

        With graphed=True it raises ValueError.
        """
        options = {"hardware": FAST, "device": CPU, "loss": loss}
        config = TrainConfig(graphed=graphed, learning_rate=RATE, precision="float32")
        if graphed:
            with pytest.raises(
                ValueError, match=r"asked for: the step.*captured; use graphed=None"
            ):
                fit(network(), batches(CPU), config, graphs=graphs(), **options)
            return
        result = fit(network(), batches(CPU), config, graphs=graphs(), **options)
        assert result.ungraphed.startswith("the step")
        assert result.replays == 0
        assert result.losses == fit(network(), batches(CPU), plain(config), **options).losses

    def test_a_step_that_waits_is_not_recorded(self, monkeypatch):
        """A step that makes the host wait is not captured, because a wait breaks the capture.

        The step that is watched for waits itself succeeds.
        """
        seen = []

        @contextlib.contextmanager
        def record_synchronisations(device):
            seen.append(device)
            yield ["called a synchronizing CUDA operation"]

        monkeypatch.setattr(graphed_module, "record_synchronisations", record_synchronisations)
        graphs, config = TapeGraphs(), TrainConfig(learning_rate=RATE)
        result = fit(network(), batches(CPU), config, graphs=graphs, hardware=NO_AMP, device=CPU)
        reason = "the step makes the host wait: called a synchronizing CUDA operation"
        assert (result.ungraphed, graphs.recordings, seen) == (reason, 0, [CPU])

    @pytest.mark.parametrize("draw", [random.random, np.random.rand])
    def test_random_numbers_of_the_host_are_not_frozen_unasked(self, draw):
        def jittered(outputs, targets):
            return F.cross_entropy(outputs, targets) * (1 + 0.1 * draw())

        options = {"device": CPU, "loss": jittered, "hardware": FAST}
        config = TrainConfig(precision="float32", learning_rate=RATE)
        result = fit(network(), batches(CPU), config, graphs=TapeGraphs(), **options)
        assert result.ungraphed.startswith("the step draws random numbers on the host")
        asked = dataclasses.replace(config, graphed=True)
        assert fit(network(), batches(CPU), asked, graphs=TapeGraphs(), **options).replays == 5


class TestTheRule:
    L4 = Hardware.nvidia((8, 9), units=58, clock_hz=2.04e9, memory_bytes_per_s=300e9)

    def watched(self, width: int) -> Watch:
        """Return the watch of one training step of a network of this width, with 256 samples."""
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))
        trainer = Trainer(model, plain(), hardware=NO_AMP, device=CPU)
        x, y = torch.randn(256, width), torch.arange(256) % 4
        with Watch() as watch:
            trainer.step([(x, y)])
        return watch

    def test_counts_are_those_of_the_formulas(self):
        watch = self.watched(64)
        # forward and the weights' gradients of both layers, the inputs' of the second
        assert watch.flops == 2 * 256 * (2 * 64 * 64 + 3 * 64 * 4)
        assert 30 < watch.operators < 150
        assert not watch.copied

    def test_little_work_is_graphed_and_much_is_not(self):
        small, large = self.watched(64), self.watched(2048)
        assert why_not_worth_it(nn.Identity(), small, self.L4, "fp32") is None
        reason = why_not_worth_it(nn.Identity(), large, self.L4, "fp32")
        assert reason.startswith("a step computes for ")
        products = large.flops / (58 * 2.04e9 * 256)
        said = float(reason.split()[4]) * 1e-3
        assert said == pytest.approx((products + large.bytes / 300e9) / 0.4, abs=1e-4)

    def test_unknown_peaks_and_hooks_are_left_alone(self):
        watch = self.watched(64)
        unknown = Hardware.nvidia((8, 9))
        reason = why_not_worth_it(nn.Identity(), watch, unknown, "fp32")
        assert reason == "how fast sm_89 multiplies fp32 is not known"
        model = network()
        model[0].register_forward_hook(lambda *_: None)
        assert why_not_worth_it(model, watch, self.L4, "fp32").startswith("the model has hooks")

    def test_the_rule_is_asked_when_left_open(self):
        for graphed, replays in ((None, 0), (True, 5)):
            config = TrainConfig(graphed=graphed, learning_rate=RATE)
            options = {"hardware": NO_AMP, "device": CPU, "graphs": TapeGraphs()}
            result = fit(network(), batches(CPU), config, **options)
            assert result.replays == replays
        config = TrainConfig(precision="float32", learning_rate=RATE)
        options = {"hardware": FAST, "device": CPU, "graphs": TapeGraphs()}
        assert fit(network(), batches(CPU), config, **options).replays == 5


@needs_cuda()
class TestOnCuda:
    @ALL
    def test_losses_are_those_of_the_loop(self, device, hardware):
        loop, graphed = network(0.3), network(0.3)
        expected = fit(loop, uneven(), plain(), hardware=hardware, device=device)
        got = fit(graphed, uneven(), CONFIG, hardware=hardware, device=device)
        assert (got.replays, got.ungraphed) == (3 * 7 - WARM_UP, None)
        assert got.losses == pytest.approx(expected.losses, rel=1e-4)
        assert all(math.isfinite(norm) for norm in got.gradient_norms)
        for a, b in zip(graphed.parameters(), loop.parameters(), strict=True):
            assert_close(a, b, 1e-3)

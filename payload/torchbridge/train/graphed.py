"""Capture a training step once as a CUDA graph and replay it by one launch.

The first steps of a shape run eagerly and are checked for operations that cannot be captured.
Replays repeat only the device's work, on the same memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.graphs import Graphs, why_no_graphs
from torchbridge.hardware import Hardware
from torchbridge.peaks import peak_bandwidth, peak_flops
from torchbridge.train.config import TrainConfig
from torchbridge.train.data import Batch, send
from torchbridge.train.optimizers import why_not_fused
from torchbridge.train.watch import (
    Watch,
    host_random_state,
    record_synchronisations,
    restore_on_failure,
)

WARM_UP = 3  # steps of a shape before it is recorded
SHAPES = 2  # of whole groups of batches, and of an epoch's last one
HOST_S = 5e-6  # host seconds per operator in eager mode: forward, backward or update
REACHED = 0.4  # of the device's peaks, by a step of ordinary layers

Outputs = tuple[Tensor, ...]
Update = Callable[[Sequence[Batch]], Outputs]


def why_not_graphed(
    config: TrainConfig, graphs: Graphs | None, device: torch.device, *, scaled: bool
) -> str | None:
    """Return why no step can be captured, or None; `scaled`: losses are scaled."""
    if config.graphed is False:
        return "not asked for"
    if graphs is None:
        return why_no_graphs(device)
    if config.compile_backend is not None:
        return "torch.compile is asked for, whose mode reduce-overhead records graphs itself"
    if scaled and (config.fused is False or why_not_fused(device)):
        return "scaled losses make the host wait for the device unless AdamW is fused"
    return None


def why_not_worth_it(model: nn.Module, watch: Watch, hardware: Hardware, number: str) -> str | None:
    """Return why a graph is not expected to be faster; None if launching takes longer than
    computing.

    The host's time is `HOST_S` per operator; the device's follows from its peaks, of which ordinary
    layers reach `REACHED`. `number` is the format of products: fp32, bf16 or fp16. Models with
    hooks are excluded, because a replay does not call them.
    """
    hooks = (m._forward_hooks or m._forward_pre_hooks for m in model.modules())  # noqa: SLF001
    if any(hooks):
        return "the model has hooks, which a replay does not call"
    flops = peak_flops(hardware, number)
    if flops is None:
        return f"how fast {hardware.target or hardware.name} multiplies {number} is not known"
    moved = watch.bytes / (peak_bandwidth(hardware) or float("inf"))
    device_s, host_s = (watch.flops / flops + moved) / REACHED, HOST_S * watch.operators
    if device_s < host_s:
        return None
    return f"a step computes for {1e3 * device_s:.1f} ms and is asked for in {1e3 * host_s:.1f} ms"


class CapturedStep:
    """The captured step of one shape, with the memory that it reads and writes."""

    def __init__(
        self,
        update: Update,
        graphs: Graphs,
        batches: Sequence[Batch],
        parameters: Sequence[nn.Parameter],
    ) -> None:
        """Capture the step; `batches` are on the device and are copied, not computed with.

        Raises:
            RuntimeError: the step cannot be captured; nothing has changed.
        """
        self._inputs = [tuple(t.clone() for t in batch) for batch in batches]
        try:
            with restore_on_failure(parameters[0].device):
                self._replay, self._outputs = graphs.record(lambda: update(self._inputs))
        except RuntimeError as error:
            raise RuntimeError(f"the step: {error}") from error
        self._gradients = [(parameter, parameter.grad) for parameter in parameters]

    def __call__(self, batches: Sequence[Batch]) -> Outputs:
        """Replay with batches of the captured shapes, on any device; return the outputs."""
        for buffers, batch in zip(self._inputs, batches, strict=True):
            for buffer, tensor in zip(buffers, batch, strict=True):
                buffer.copy_(send(tensor, buffer.device), non_blocking=True)
        self._replay()
        for parameter, gradient in self._gradients:  # an eager step in between replaces them
            if parameter.grad is not gradient:
                parameter.grad = gradient
        return tuple(output.clone() for output in self._outputs)  # the next replay overwrites them


class GraphedStep:
    """A training step that is captured once a batch shape has occurred `WARM_UP` times, then
    replayed.

    `reason` says why there is no graph (yet), None once there is one; `replays` counts its uses.
    Other shapes run eagerly, for example an epoch's last batch.
    """

    def __init__(
        self,
        update: Update,
        graphs: Graphs,
        parameters: Sequence[nn.Parameter],
        *,
        insist: bool,
        worth: Callable[[Watch], str | None],
    ) -> None:
        """Prepare; `worth` returns why a graph would not be faster, and is unused with `insist`."""
        self.replays = 0
        self.reason: str | None = f"no shape of batches came {WARM_UP + 1} times"
        self._update, self._graphs, self._parameters = update, graphs, parameters
        self._insist, self._worth = insist, worth
        self._seen: Counter[Any] = Counter()
        self._refused = self._drawn = False  # `_drawn`: random numbers, on the host
        self._recorded: CapturedStep | None = None
        self._shape: Any = None

    def __call__(self, batches: Sequence[Batch]) -> Outputs:
        """Run one step and return its outputs.

        Raises:
            ValueError: `insist` is set, and the step cannot be captured.
        """
        if self._refused:
            return self._update(batches)
        shape = [tuple((t.shape, t.dtype) for t in batch) for batch in batches]
        if self._recorded is None:
            return self._before(batches, tuple(shape))
        if tuple(shape) != self._shape:
            return self._update(batches)
        self.replays += 1
        return self._recorded(batches)

    def _before(self, batches: Sequence[Batch], shape: Any) -> Outputs:
        """Run an eager step before the capture; the last one is observed."""
        self._seen[shape] += 1
        if len(self._seen) > SHAPES:
            self._refuse(f"batches come in more than {SHAPES} shapes")
            return self._update(batches)
        device = self._parameters[0].device
        batches = [tuple(send(t, device) for t in batch) for batch in batches]
        if self._seen[shape] > WARM_UP:
            return self._first_replay(batches, shape)
        random_state = host_random_state(device)
        if self._seen[shape] < WARM_UP:
            with self._graphs.aside():
                outputs = self._update(batches)
            self._drawn |= host_random_state(device) != random_state
            return outputs
        with Watch() as watch, record_synchronisations(device) as waits, self._graphs.aside():
            outputs = self._update(batches)
        self._drawn |= host_random_state(device) != random_state
        if reason := self._why_not(watch, waits):
            self._refuse(reason)
        return outputs

    def _why_not(self, watch: Watch, waits: list[str]) -> str | None:
        """Return why an observed step cannot or should not be captured; None if it can be."""
        if waits:
            return f"the step makes the host wait: {waits[0]}"
        if watch.copied:
            return "the step copies between host and device, which a replay would not do anew"
        if self._insist:
            return None
        if self._drawn:
            return "the step draws random numbers on the host, which a replay would repeat"
        return self._worth(watch)

    def _first_replay(self, batches: Sequence[Batch], shape: Any) -> Outputs:
        """Capture the step and replay it; run it eagerly if it cannot be captured."""
        try:
            recorded = CapturedStep(self._update, self._graphs, batches, self._parameters)
        except RuntimeError as error:
            self._refuse(str(error))
            return self._update(batches)
        self._recorded, self._shape, self.reason, self.replays = recorded, shape, None, 1
        return recorded(batches)

    def _refuse(self, reason: str) -> None:
        if self._insist:
            raise ValueError(f"graphed was asked for: {reason}; use graphed=None")
        self._refused, self.reason = True, reason

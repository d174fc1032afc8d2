"""Capture a layer's forward in a CUDA graph, for decoding, where kernel launches dominate."""

from __future__ import annotations

import torch
from torch import Tensor

from torchbridge.graphs import CudaGraphs, Graphs, Replay, why_no_graphs
from torchbridge.moe.dispatch import path_for
from torchbridge.moe.layers import MoELayer

WARM_UPS = 3


class CapturedLayer:
    """A captured MoE layer in evaluation mode for x of one shape, dtype and device.

    A call copies x in, replays and copies the output out; there is no aux output. The layer's
    counters `computed` and `dropped` count replays, not the capture. Weights may change in place;
    if they move, or the layer is set to training, calls raise.
    """

    def __init__(self, layer: MoELayer, x: Tensor, *, graphs: Graphs | None = None) -> None:
        """Capture for batches like x [..., d], whose values do not matter.

        Raises:
            RuntimeError: the layer cannot be captured; the message has the reason.
        """
        reason = (graphs is None and why_no_graphs(x.device)) or why_not_captured(layer, x)
        if reason:
            raise RuntimeError(f"the layer cannot be captured: {reason}")
        self.layer = layer
        self._input = x.detach().clone()
        self._places = _places(layer)
        with torch.no_grad():
            self._replay, self._output = self._record(graphs or CudaGraphs(x.device))

    def _record(self, graphs: Graphs) -> tuple[Replay, Tensor]:
        counters = (self.layer.computed, self.layer.dropped)
        before = [counter.clone() for counter in counters]
        try:
            with graphs.aside():
                for _ in range(WARM_UPS):
                    self.layer(self._input)
            return graphs.record(lambda: self.layer(self._input))
        except RuntimeError as error:
            raise RuntimeError(f"the layer cannot be captured: {error}") from error
        finally:  # what warmed up was no call
            for counter, value in zip(counters, before, strict=True):
                counter.copy_(value)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Return a copy of the layer's output for x.

        Raises:
            ValueError: x has another shape, dtype or device than the captured one.
            RuntimeError: the layer has changed since the capture.
        """
        self._check(x)
        self._input.copy_(x)
        self._replay()
        return self._output.clone()

    def _check(self, x: Tensor) -> None:
        given, captured = _kind(x), _kind(self._input)
        if given != captured:
            raise ValueError(f"captured for {captured}, got {given}")
        if self.layer.training:
            raise RuntimeError("captured in eval, but the layer is in training now")
        if _places(self.layer) != self._places:
            raise RuntimeError("weights or counters have moved since the capture; capture again")


def why_not_captured(layer: MoELayer, x: Tensor) -> str | None:
    """Return why `layer` cannot be captured for batches like x [..., d]; None if it can."""
    if layer.training:
        return "it is in training; call eval() first"
    with torch.no_grad():
        tokens = x.reshape(-1, layer.hidden_size)
        path = path_for(layer.experts, tokens, layer.config, layer.parallel)
    if path.asks_host:
        return f"by {path} the host waits for the device"
    return None


def _kind(x: Tensor) -> str:
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')} on {x.device}"


def _places(layer: MoELayer) -> list[int]:
    """Where the layer's parameters and buffers lie."""
    return [tensor.data_ptr() for tensor in (*layer.parameters(), *layer.buffers())]

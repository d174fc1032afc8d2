"""The training loop, for every device, without synchronisation between first and last step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.device import pick_device, synchronise
from torchbridge.graphs import CudaGraphs, Graphs, why_no_graphs
from torchbridge.hardware import Hardware, probe
from torchbridge.train import checkpoint
from torchbridge.train.config import Precision, TrainConfig, choose_precision
from torchbridge.train.data import Batch, send
from torchbridge.train.graphed import GraphedStep, Outputs, why_not_graphed, why_not_worth_it
from torchbridge.train.optimizers import learning_rate, make_adamw

# outputs and targets of a batch -> the mean over its samples
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Result of a run, with one entry per step in the tuples.

    `unfused` says why AdamW was not fused, or None; `seconds` is wall-clock time of the steps made
    in this run; `ungraphed` says why steps were not replayed from a CUDA graph, or None; `replays`
    is the number of replayed steps.
    """

    losses: tuple[float, ...]
    learning_rates: tuple[float, ...]
    gradient_norms: tuple[float, ...]  # before they were clipped; empty without clip_norm
    precision: Precision
    unfused: str | None
    seconds: float
    ungraphed: str | None = None
    replays: int = 0

    @property
    def steps(self) -> int:
        """Number of steps, including those before a resumption."""
        return len(self.losses)


class Trainer:
    """State of a training run: model, optimizer, scaler, and the results of each step."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainConfig,
        *,
        steps: int = 1,
        loss: Loss = F.cross_entropy,
        hardware: Hardware | None = None,
        device: torch.device | None = None,
        graphs: Graphs | None = None,
    ) -> None:
        """Prepare a run of `steps` steps, which the learning-rate schedule needs.

        `graphs` captures steps, by default CUDA graphs on a CUDA device.

        Raises:
            ValueError: the config cannot be met on this device.
        """
        self.device = device or pick_device()
        self.config = config
        self.total_steps = steps
        self.model = model.to(self.device)
        self.loss = loss
        self.hardware = hardware or probe(self.device)
        self.precision = choose_precision(self.hardware, config.precision)
        self._graphs = graphs or _cuda_graphs(self.device, config)
        self._refusal = self._why_not_graphed()
        # read by a graph that is replayed, so it has to be on the device
        self._rate = None if self._refusal else torch.zeros((), device=self.device)
        self.optimizer, self.unfused = make_adamw(model.parameters(), config, self._rate)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision.scaled)
        self.losses: list[Tensor] = []  # scalars, on the device until `result` is called
        self.gradient_norms: list[Tensor] = []
        backend, dtype = config.compile_backend, self.precision.dtype
        self._forward = torch.compile(model, backend=backend) if backend else model
        self._autocast = torch.autocast(self.device.type, dtype=dtype) if dtype else nullcontext()
        self._learning = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.rewire()

    @property
    def steps(self) -> int:
        """Number of steps made."""
        return len(self.losses)

    @property
    def ungraphed(self) -> str | None:
        """Why steps are not replayed from a graph, or None."""
        return self._graphed.reason if self._graphed else self._refusal

    def rewire(self) -> None:
        """Use the optimizer's current state, and drop any captured step."""
        self._graphed = None if self._refusal else self._recording()
        self._advance: Callable[[Sequence[Batch]], Outputs] = self._graphed or self._update
        if self._rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate

    def _why_not_graphed(self) -> str | None:
        scaled = self.precision.scaled
        reason = why_not_graphed(self.config, self._graphs, self.device, scaled=scaled)
        if reason and self.config.graphed:
            raise ValueError(f"graphed was asked for: {reason}; use graphed=None")
        return reason

    def _recording(self) -> GraphedStep:
        number = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(self.precision.dtype, "fp32")
        worth = partial(why_not_worth_it, self.model, hardware=self.hardware, number=number)
        insist = self.config.graphed is True
        graphs, learning = self._graphs, self._learning
        return GraphedStep(self._update, graphs, learning, insist=insist, worth=worth)

    def step(self, batches: Sequence[Batch]) -> None:
        """Update the weights by all batches together, as if they were one.

        Each is weighted by its number of samples, so the loss must be a mean over them.
        """
        rate = learning_rate(self.config, self.steps, self.total_steps)
        if self._rate is not None:
            self._rate.fill_(rate)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        loss, *norm = self._advance(batches)
        self.losses.append(loss)
        self.gradient_norms += norm

    def _update(self, batches: Sequence[Batch]) -> Outputs:
        """Return the loss of one update, and the norm of its gradients if they are clipped."""
        for parameter in self._learning:
            parameter.grad = None
        samples = sum(len(targets) for _, targets in batches)
        losses = [self._backward(batch, len(batch[1]) / samples) for batch in batches]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        norms: Outputs = ()
        if self.config.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            norms = (nn.utils.clip_grad_norm_(self._learning, self.config.clip_norm).detach(),)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss, *norms

    def _backward(self, batch: Batch, share: float) -> Tensor:
        inputs, targets = (send(tensor, self.device) for tensor in batch)
        with self._autocast:
            loss = self.loss(self._forward(inputs), targets)
        if share != 1:
            loss = loss * share
        self.scaler.scale(loss).backward()
        return loss.detach()

    def result(self, seconds: float = 0.0) -> TrainResult:
        """Return the results so far, which synchronises the device."""
        rates = (learning_rate(self.config, n, self.total_steps) for n in range(self.steps))
        return TrainResult(
            _numbers(self.losses),
            tuple(rates),
            _numbers(self.gradient_norms),
            self.precision,
            self.unfused,
            seconds,
            self.ungraphed,
            self._graphed.replays if self._graphed else 0,
        )


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    config: TrainConfig | None = None,
    *,
    loss: Loss = F.cross_entropy,
    hardware: Hardware | None = None,
    device: torch.device | None = None,
    graphs: Graphs | None = None,
    checkpoint_path: Path | None = None,
    stop_at: int | None = None,
) -> TrainResult:
    """Train `model`, in place and in training mode, on the batches of every epoch.

    `batches` have a length and a repeatable order; `set_epoch` is called first if they have it. An
    existing `checkpoint_path` is resumed bit for bit; it is written at the end. `stop_at` ends
    after that many steps in total.

    Raises:
        ValueError: the checkpoint is of another config, or the config cannot be met on this device.
    """
    config = config or TrainConfig()
    steps = config.epochs * math.ceil(len(batches) / config.accumulate)
    options = {"loss": loss, "hardware": hardware, "device": device, "graphs": graphs}
    trainer = Trainer(model.train(), config, steps=steps, **options)
    if config.seed is not None:
        torch.manual_seed(config.seed)
    if checkpoint_path is not None and checkpoint_path.exists():
        checkpoint.load(trainer, checkpoint_path)
    synchronise(trainer.device)
    start = time.perf_counter()
    groups = islice(_groups(batches, config), trainer.steps, stop_at)
    for group in groups:
        trainer.step(group)
    synchronise(trainer.device)
    seconds = time.perf_counter() - start
    if checkpoint_path is not None:
        checkpoint.save(trainer, checkpoint_path)
    return trainer.result(seconds)


def _groups(batches: Iterable[Batch], config: TrainConfig) -> Iterator[list[Batch]]:
    """Yield the batches of each step, epoch after epoch; an epoch's last group may be smaller."""
    for epoch in range(config.epochs):
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(epoch)
        remaining = iter(batches)
        while group := list(islice(remaining, config.accumulate)):
            yield group


def _cuda_graphs(device: torch.device, config: TrainConfig) -> Graphs | None:
    wanted = config.graphed is not False and why_no_graphs(device) is None
    return CudaGraphs(device) if wanted else None


def _numbers(scalars: list[Tensor]) -> tuple[float, ...]:
    return tuple(torch.stack(scalars).tolist()) if scalars else ()

"""Training with float8 products: the model, and the loss scale around the optimiser's step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.fp8 import transformer_engine
from torchbridge.fp8.config import FP8Config
from torchbridge.fp8.conversion import adopt, convert_linears, linear_layers, replace_modules
from torchbridge.fp8.delayed import FP8LinearLayer, histories

Loss = Callable[[Tensor, Tensor], Tensor]


def convert_model_to_fp8_training(
    model: nn.Module, config: FP8Config | None = None, *, inplace: bool = False
) -> nn.Module:
    """`model` with FP8LinearLayer for every nn.Linear.

    In place the layers keep their very Parameters, so that an optimiser stays valid.

    Raises:
        ValueError: the model has no layer to convert.
    """
    settings = config or FP8Config()
    if not inplace:
        model = copy.deepcopy(model)
    return convert_linears(model, lambda linear: _fp8_layer(linear, settings))


def _fp8_layer(linear: nn.Linear, config: FP8Config) -> nn.Module:
    """An FP8LinearLayer in the place of `linear`, its histories where the weight is."""
    widths = linear.in_features, linear.out_features
    layer = FP8LinearLayer(*widths, linear.bias is not None, config, device="meta")
    layer.histories = histories(config, linear.weight.device)
    return adopt(linear, layer)


class FP8TrainingEngine:
    """Trains a model whose linear layers compute with float8; outside `with` it is as before.

    Entering (or `setup`) replaces the layers, leaving (or `restore`) puts the plain ones back, with
    the trained parameters: they are the same objects all along, so any optimiser stays valid.

    Each float8 tensor has a scale of its own. The loss scale is for what is not float8: gradients
    of float16 layers between them. With float32 and bfloat16 it cancels; a power of two does so
    exactly. A step whose gradients are not finite is left out and counted.

    `te`: the Transformer Engine package; by default the installed one, if the config wants it and
    it can do on this device what the config says. `path_taken` is transformer_engine or native;
    `fallback` says why the first was wanted and not taken.
    """

    def __init__(
        self, model: nn.Module, config: FP8Config | None = None, *, te: ModuleType | None = None
    ) -> None:
        self.model, self.config = model, config or FP8Config()
        self.device = next(model.parameters()).device
        self.te, self.fallback = te, None
        if te is None and self.config.use_te_linear:
            self.fallback = transformer_engine.why_not(self.device, self.config)
            self.te = transformer_engine.load() if self.fallback is None else None
        self.steps = self.overflows = 0
        self.scaler = torch.amp.GradScaler(
            self.device.type,
            init_scale=self.config.initial_scale,
            growth_factor=self.config.growth_factor,
            backoff_factor=self.config.backoff_factor,
            growth_interval=self.config.growth_interval,
        )
        self._originals: dict[nn.Module, nn.Module] = {}  # by what stands in for them

    @property
    def path_taken(self) -> str:
        """transformer_engine or native."""
        return "native" if self.te is None else "transformer_engine"

    @property
    def loss_scale(self) -> float:
        """What the next loss is multiplied by."""
        return self.scaler.get_scale()

    def setup(self) -> FP8TrainingEngine:
        """Replace the linear layers, once.

        Raises:
            ValueError: the model has no layer to convert, or Transformer Engine lacks the formats.
        """
        if self._originals:
            return self
        layers = list(linear_layers(self.model).values())
        if self.te is not None:
            transformer_engine.recipe(self.config, self.te)  # refused now rather than in a step
            layers = [one for one in layers if transformer_engine.fits(one)]
        if not layers:
            raise ValueError(f"{type(self.model).__name__} has no nn.Linear to convert")
        stand_ins = {one: self._stand_in(one) for one in layers}
        self.model = replace_modules(self.model, stand_ins)
        self._originals = {new: old for old, new in stand_ins.items()}
        return self

    def restore(self) -> nn.Module:
        """Put the plain layers back; they have the trained parameters."""
        for new, old in self._originals.items():
            old.train(new.training)
        self.model = replace_modules(self.model, self._originals)
        self._originals = {}
        return self.model

    def __enter__(self) -> FP8TrainingEngine:
        return self.setup()

    def __exit__(self, *_: object) -> None:
        self.restore()

    def training_step(self, inputs: Tensor, targets: Tensor, loss: Loss = F.mse_loss) -> Tensor:
        """Forward and backward, adding to the gradients; returns the loss, unscaled and detached.

        Raises:
            RuntimeError: the engine was not set up.
        """
        if not self._originals:
            raise RuntimeError("the engine is not set up: call setup() or use it in `with`")
        with self._products():
            value = loss(self.model(inputs), targets)
        self.scaler.scale(value).backward()
        return value.detach()

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step by the unscaled gradients and clear them; False if they were not finite."""
        before = self.loss_scale
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad()
        stepped = self.loss_scale >= before
        self.steps += stepped
        self.overflows += not stepped
        return stepped

    def statistics(self) -> dict[str, Any]:
        """Steps made and left out, the loss scale, and of each layer its scales and path."""
        layers = {name: one for name, one in self.model.named_modules() if one in self._originals}
        native = {name: one for name, one in layers.items() if isinstance(one, FP8LinearLayer)}
        return {
            "steps": self.steps,
            "overflows": self.overflows,
            "loss_scale": self.loss_scale,
            "layers": len(layers),
            "path_taken": self.path_taken,
            "fallback": self.fallback,
            "saturated": sum(one.saturated() for one in native.values()),
            "scales": {name: one.get_scales() for name, one in native.items()},
            "layer_paths": {name: dict(one.paths) for name, one in native.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint: the model with its histories, the loss scale, the counts."""
        counts = {"steps": self.steps, "overflows": self.overflows}
        return {"model": self.model.state_dict(), "scaler": self.scaler.state_dict(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint of an engine that was set up like this one."""
        self.model.load_state_dict(state["model"])
        self.scaler.load_state_dict(state["scaler"])
        self.steps, self.overflows = state["steps"], state["overflows"]

    def _stand_in(self, original: nn.Linear) -> nn.Module:
        if self.te is not None:
            return transformer_engine.linear(original, self.te)
        return _fp8_layer(original, self.config)

    def _products(self) -> AbstractContextManager[Any]:
        if self.te is not None:
            return transformer_engine.autocast(self.config, self.te)
        return nullcontext()


def create_fp8_trainer(
    model: nn.Module, *, te: ModuleType | None = None, **settings: Any
) -> FP8TrainingEngine:
    """An engine that is set up; `settings` are FP8Config's."""
    return FP8TrainingEngine(model, FP8Config(**settings), te=te).setup()

"""Training with float8 products: settings, delayed scales, layers and the training engine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.float8 import (
    FP8Dtype,
    FP8QuantizedTensor,
    amax_of,
    native_dtype,
    scale_from_amax,
)
from torchbridge.fp8.conversion import (
    PinnedDtypes,
    adopt,
    convert_linears,
    replace_modules,
    replacements_of,
)
from torchbridge.fp8.linear import GRANULARITIES, LAYER_PATHS, NativeFP8Linear
from torchbridge.kernels.registry import autocast_on

FP8Format = FP8Dtype  # its name in training
SCALINGS = ("dynamic", "delayed")
AMAX_ALGORITHMS = ("max", "most_recent")


@dataclass(frozen=True, slots=True)
class FP8Config:
    """Settings of training with float8 products.

    `scaling`: "dynamic" computes each tensor's scale from the tensor; "delayed" from the largest
    magnitudes (`amax_compute_algo`: max or most_recent) of the last `amax_history_len` steps, with
    a headroom of 2 ** `margin`. `granularity` applies to dynamic scales. The loss scale for float16
    starts at `initial_scale`, is multiplied by `growth_factor` after `growth_interval` good steps,
    and by `backoff_factor` when a gradient is not finite. `path` and `fast_accum` are
    NativeFP8Linear's.

    Raises:
        ValueError: a setting is invalid.
    """

    forward_format: FP8Format = FP8Format.E4M3
    backward_format: FP8Format = FP8Format.E5M2
    scaling: str = "dynamic"
    granularity: str = "tensor"
    initial_scale: float = 32768.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"
    margin: int = 2
    path: str | None = None
    fast_accum: bool = True

    def __post_init__(self) -> None:
        wrong = [name for name, right in self._rules().items() if not right]
        if wrong:
            found = ", ".join(f"{name}={getattr(self, name)!r}" for name in wrong)
            raise ValueError(f"FP8Config cannot have {found}")

    def _rules(self) -> dict[str, bool]:
        """Return by setting whether its value is valid."""
        delayed = self.scaling == "delayed"
        return {
            "forward_format": self.forward_format in list(FP8Format),
            "backward_format": self.backward_format in list(FP8Format),
            "scaling": self.scaling in SCALINGS,
            "granularity": self.granularity in (("tensor",) if delayed else GRANULARITIES),
            "initial_scale": self.initial_scale > 0,
            "growth_factor": self.growth_factor > 1,
            "backoff_factor": 0 < self.backoff_factor < 1,
            "growth_interval": self.growth_interval > 0,
            "amax_history_len": self.amax_history_len > 0,
            "amax_compute_algo": self.amax_compute_algo in AMAX_ALGORITHMS,
            "margin": self.margin >= 0,
            "path": self.path in (None, *LAYER_PATHS),
        }


class AmaxHistory(PinnedDtypes):
    """Largest magnitudes of the last `length` steps, newest first; 0 for steps not made yet.

    `saturated` counts numbers that exceeded the format's range.
    """

    pinned = ("amax", "scale")

    def __init__(
        self, fmt: FP8Dtype, config: FP8Config, device: torch.device | None = None
    ) -> None:
        super().__init__()
        self.format, self.margin = fmt, config.margin
        self.newest_only = config.amax_compute_algo == "most_recent"
        self.register_buffer("amax", torch.zeros(config.amax_history_len, device=device))
        self.register_buffer("scale", torch.ones((), device=device))
        self.register_buffer("saturated", torch.zeros((), dtype=torch.int64, device=device))

    @torch.no_grad()
    def quantize(self, x: Tensor, record: bool) -> FP8QuantizedTensor:
        """Quantise x by the scale of earlier steps; with `record`, add x's magnitude for
        later steps.

        The first tensor is scaled by its own magnitude.
        """
        limit = torch.finfo(native_dtype(self.format, x.device)).max
        current = amax_of(x)
        past = self.amax[0] if self.newest_only else self.amax.amax()
        scale = scale_from_amax(torch.where(past > 0, past, current), limit, self.margin)
        quantised = FP8QuantizedTensor.from_tensor(x, self.format, scale=scale)
        if record:
            self.scale.copy_(scale)
            beyond = limit * (1 + 2.0**-20)  # that much is float32's rounding
            self.saturated += (x.abs().float() * scale > beyond).sum()
            self.amax.copy_(self.amax.roll(1))
            self.amax[0] = current.where(current.isfinite(), 0.0)  # an overflow is not recorded
        return quantised


def histories(config: FP8Config, device: torch.device | None = None) -> nn.ModuleDict:
    """Create empty histories by role; none with dynamic scaling."""
    if config.scaling == "dynamic":
        return nn.ModuleDict()
    formats = {
        "input": config.forward_format,
        "weight": config.forward_format,
        "gradient": config.backward_format,
    }
    return nn.ModuleDict({role: AmaxHistory(fmt, config, device) for role, fmt in formats.items()})


class FP8LinearLayer(NativeFP8Linear):
    """NativeFP8Linear configured by an FP8Config, with delayed scaling if configured; x [..., in].

    In eval mode the histories are used and not changed. torch.compile cannot capture delayed
    scaling in one graph, because the gradient's history changes in backward.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        config: FP8Config | None = None,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        config = config or FP8Config()
        super().__init__(
            in_features,
            out_features,
            bias,
            forward_format=config.forward_format,
            backward_format=config.backward_format,
            granularity=config.granularity,
            path=config.path,
            fast_accum=config.fast_accum,
            device=device,
            dtype=dtype,
        )
        self.config = config
        self.histories = histories(config, device)

    def quantize(self, role: str, matrix: Tensor) -> FP8QuantizedTensor:
        """Quantise `matrix` by the history of its role (input, weight, gradient), if any."""
        if role in self.histories:
            return self.histories[role].quantize(matrix, record=self.training)
        return super().quantize(role, matrix)

    def _state(self) -> object:
        """Return None with delayed scaling, whose scale depends on the history: cache nothing."""
        return None if self.histories else super()._state()

    def get_scales(self) -> dict[str, float]:
        """Return the last scales by role; empty with dynamic scaling."""
        return {role: one.scale.item() for role, one in self.histories.items()}

    def saturated(self) -> int:
        """Return how many numbers exceeded delayed scales since construction."""
        return sum(int(one.saturated) for one in self.histories.values())


Loss = Callable[[Tensor, Tensor], Tensor]


def convert_model_to_fp8_training(
    model: nn.Module, config: FP8Config | None = None, *, inplace: bool = False
) -> nn.Module:
    """Replace every nn.Linear by FP8LinearLayer.

    In place the parameters are kept, so an optimizer stays valid.

    Raises:
        ValueError: the model has no layer to convert.
    """
    settings = config or FP8Config()
    if not inplace:
        model = copy.deepcopy(model)
    return convert_linears(model, lambda linear: _fp8_layer(linear, settings))


def _fp8_layer(linear: nn.Linear, config: FP8Config) -> nn.Module:
    """Return an FP8LinearLayer with the parameters of `linear`, and histories on its device."""
    widths = linear.in_features, linear.out_features
    layer = FP8LinearLayer(*widths, linear.bias is not None, config, device="meta")
    layer.histories = histories(config, linear.weight.device)
    return adopt(linear, layer)


class FP8TrainingEngine:
    """Train a model whose linear layers compute in float8 within a `with` block.

    Entering (or `setup`) replaces the layers, leaving (or `restore`) restores the original ones;
    the parameters are the same objects, so any optimizer stays valid. The loss is scaled if
    autocast computes in float16: steps with non-finite gradients are skipped and counted, which
    synchronises the device. float32 and bfloat16 need no loss scale and no synchronisation.
    """

    def __init__(self, model: nn.Module, config: FP8Config | None = None) -> None:
        self.model, self.config = model, config or FP8Config()
        self.device = next(model.parameters()).device
        self.steps = self.overflows = 0
        self._scaled = False  # are there gradients of a scaled loss?
        self.scaler = torch.amp.GradScaler(
            self.device.type,
            init_scale=self.config.initial_scale,
            growth_factor=self.config.growth_factor,
            backoff_factor=self.config.backoff_factor,
            growth_interval=self.config.growth_interval,
        )
        self._scale = self.config.initial_scale  # as it was read last: reading waits for the device
        self._originals: dict[nn.Module, nn.Module] = {}  # original layers, by their replacements

    @property
    def loss_scale(self) -> float:
        """The factor of the next loss in float16."""
        return self.scaler.get_scale()

    def setup(self) -> FP8TrainingEngine:
        """Replace the linear layers, once.

        Raises:
            ValueError: there is no layer to convert.
        """
        if self._originals:
            return self
        stand_ins = replacements_of(self.model, lambda one: _fp8_layer(one, self.config))
        self.model = replace_modules(self.model, stand_ins)
        self._originals = {new: old for old, new in stand_ins.items()}
        return self

    def restore(self) -> nn.Module:
        """Restore the original layers, which have the trained parameters."""
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
        """Run forward and backward, accumulate gradients, and return the unscaled, detached loss.

        Raises:
            RuntimeError: the engine was not set up.
        """
        if not self._originals:
            raise RuntimeError("the engine is not set up: call setup() or use it in `with`")
        value = loss(self.model(inputs), targets)
        self._scaled |= _in_float16(self.device)
        (self.scaler.scale(value) if self._scaled else value).backward()
        return value.detach()

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update by the unscaled gradients and clear them; False if float16's were not finite."""
        stepped = True
        if self._scaled:
            self.scaler.step(optimizer)
            self.scaler.update()
            before, self._scale = self._scale, self.loss_scale
            stepped = self._scale >= before
        else:
            optimizer.step()
        optimizer.zero_grad()
        self._scaled = False
        self.steps += stepped
        self.overflows += not stepped
        return stepped

    def statistics(self) -> dict[str, Any]:
        """Return steps made and skipped, loss scale, and each layer's scales and path."""
        layers = {name: one for name, one in self.model.named_modules() if one in self._originals}
        return {
            "steps": self.steps,
            "overflows": self.overflows,
            "loss_scale": self.loss_scale,
            "layers": len(layers),
            "saturated": sum(one.saturated() for one in layers.values()),
            "scales": {name: one.get_scales() for name, one in layers.items()},
            "layer_paths": {name: dict(one.paths) for name, one in layers.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint: model with histories, loss scale, counts."""
        counts = {"steps": self.steps, "overflows": self.overflows}
        return {"model": self.model.state_dict(), "scaler": self.scaler.state_dict(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a checkpoint of an engine with the same setup."""
        self.model.load_state_dict(state["model"])
        self.scaler.load_state_dict(state["scaler"])
        self._scale = self.loss_scale
        self.steps, self.overflows = state["steps"], state["overflows"]


def _in_float16(device: torch.device) -> bool:
    """Return whether autocast computes in float16 on the device."""
    return autocast_on(device.type) and torch.get_autocast_dtype(device.type) == torch.float16


def create_fp8_trainer(model: nn.Module, **settings: Any) -> FP8TrainingEngine:
    """Create an engine and set it up; `settings` are FP8Config's."""
    return FP8TrainingEngine(model, FP8Config(**settings)).setup()

"""Apply a Config: prepare and validate models, build attention layers, set up training.

Backends apply the optimization level, the kernels and their vendor's settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchbridge.attention import MultiHeadAttention, create_pattern
from torchbridge.backends import create_backend
from torchbridge.config import AttentionConfig, Config, PrecisionFormat
from torchbridge.fp8 import FP8Dtype, convert_model_to_native_fp8
from torchbridge.hardware import VENDORS
from torchbridge.passes import Prepared
from torchbridge.train import TrainConfig
from torchbridge.validation import Report, UnifiedValidator

FP8 = {PrecisionFormat.FP8_E4M3: FP8Dtype.E4M3, PrecisionFormat.FP8_E5M2: FP8Dtype.E5M2}
BACKENDS = {one.choice: one.backend for one in VENDORS.values()}


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """A model prepared by `apply_config`.

    `checkpointed` names the blocks whose activations are recomputed in the backward pass. `report`
    is the validation's report, None if validation is disabled.
    """

    prepared: Prepared
    checkpointed: tuple[str, ...]
    report: Report | None

    @property
    def model(self) -> nn.Module:
        """The prepared module."""
        return self.prepared.model


def apply_config(
    model: nn.Module,
    config: Config,
    sample_inputs: Sequence[Tensor] = (),
    *,
    training: bool = False,
) -> ConfiguredModel:
    """Convert `model` to the configured format and prepare, checkpoint and validate it, in place.

    `sample_inputs` are positional arguments of forward, needed for validation; for inference they
    are cast to the format of the weights.

    Raises:
        ValueError: the format cannot be computed, or validation is asked for without inputs.
    """
    if config.validation.enabled and not sample_inputs:
        raise ValueError("validation needs sample_inputs; give them, or switch it off")
    if not training:
        model, sample_inputs = _stored(model, sample_inputs, config.precision.default_format)
    again = training and config.memory.gradient_checkpointing
    blocks = checkpoint_blocks(model) if again else ()  # before anything is compiled
    chosen = config.hardware.chosen().value
    backend = create_backend(BACKENDS.get(chosen, chosen), config)
    prepared = backend.prepare_model(model, sample_inputs=sample_inputs, training=training)
    if not config.validation.enabled:
        return ConfiguredModel(prepared, blocks, None)
    validator = UnifiedValidator(config.validation.level, device=backend.device)
    return ConfiguredModel(
        prepared, blocks, validator.validate_model(prepared.model, sample_inputs)
    )


def _stored(
    model: nn.Module, inputs: Sequence[Tensor], number: PrecisionFormat
) -> tuple[nn.Module, list[Tensor]]:
    """Weights in a format, and the inputs in the one that is computed in."""
    if number is PrecisionFormat.FP4:
        raise ValueError("torch computes nothing in fp4; use fp8_e4m3 or a wider format")
    if number in FP8:
        how = {"forward_format": FP8[number], "path": "auto"}  # it is asked for by name
        model = convert_model_to_native_fp8(model, inplace=True, **how)
        return model, list(inputs)
    wide = [x.to(number.dtype) if x.is_floating_point() else x for x in inputs]
    return model.to(number.dtype), wide


def checkpoint_blocks(model: nn.Module) -> tuple[str, ...]:
    """Enable activation checkpointing for the blocks of every nn.ModuleList; return their names.

    A block is a member that has submodules. Its inputs are stored instead of its activations.
    """
    found = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList):
            continue
        for key, block in module.named_children():
            if any(True for _ in block.children()):
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
                found.append(f"{name}.{key}" if name else key)
    return tuple(found)


def attention_layer(config: AttentionConfig, embed_dim: int, num_heads: int) -> MultiHeadAttention:
    """Build an attention layer with the pattern, window and dropout of the configuration.

    Raises:
        ValueError: the pattern is not implemented.
    """
    window = {} if config.window_size is None else {"window": config.window_size}
    pattern = create_pattern(config.pattern, **window)
    return MultiHeadAttention(embed_dim, num_heads, pattern=pattern, dropout=config.dropout)


def train_config(config: Config, **settings: object) -> TrainConfig:
    """Return the settings of a training run; `mixed_precision` becomes autocast, `settings`
    override.

    Raises:
        ValueError: the configured default format is not fp32.
    """
    number = config.precision.default_format
    if number is not PrecisionFormat.FP32:
        raise ValueError(
            f"weights are trained in fp32, with mixed_precision, not in {number.value}"
        )
    precision = "auto" if config.precision.mixed_precision else "float32"
    return TrainConfig(**{"precision": precision, **settings})

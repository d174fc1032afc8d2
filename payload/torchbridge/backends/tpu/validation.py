"""What a TPU will not do, or will do slowly, found out before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from torchbridge.backends.tpu.exceptions import TPUConfigurationError, TPUModelError
from torchbridge.backends.tpu.memory import tiled
from torchbridge.backends.tpu.xla import XLA
from torchbridge.config import TPUConfig, TPUTopology, TPUVersion, detect_tpu_version
from torchbridge.config.tpu import MEMORY_GB

_WASTE = 0.5  # a weight that fills less than half of its tiles is worth a warning
_IMPOSSIBLE = (torch.complex128, torch.qint8, torch.quint8)


@dataclass(frozen=True, slots=True)
class Findings:
    """`errors` keep the model or the settings off the TPU, `warnings` make it slow."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """No errors."""
        return not self.errors


def validate_config(config: TPUConfig, xla: XLA) -> Findings:
    """Do the settings fit the chip? With `strict_validation` warnings are errors.

    Raises:
        TPUConfigurationError: `strict_validation`, and something was found.
    """
    findings = Findings(tuple(_misfits(config, xla)), tuple(_slow_settings(config)))
    return _strictly(findings, config, TPUConfigurationError)


def _misfits(config: TPUConfig, xla: XLA) -> Iterator[str]:
    try:
        found = detect_tpu_version(xla.accelerator)
    except ValueError:
        found = TPUVersion.AUTO
    told = config.version is not TPUVersion.AUTO and found is not TPUVersion.AUTO
    if told and config.version is not found:
        yield f"version is {config.version.value}, the chip is {found.value}"
    here = config.version if found is TPUVersion.AUTO else found
    most = MEMORY_GB.get(here.value)
    if config.memory_gb and most and config.memory_gb > most:
        yield f"memory_gb is {config.memory_gb:g}, a {here.value} chip has {most}"
    if config.topology is TPUTopology.SINGLE and xla.world_size > 8:
        yield f"topology is single, the job has {xla.world_size} devices"


def _slow_settings(config: TPUConfig) -> Iterator[str]:
    if config.dynamic_shapes:
        yield "dynamic_shapes: XLA compiles again for every shape"
    if config.precision == "float32" and config.xla_optimization_level == 0:
        yield "float32 at level 0: every product takes six passes of bfloat16"


def validate_model(model: nn.Module, config: TPUConfig) -> Findings:
    """Can its weights be stored and multiplied well? With `strict_validation` warnings are errors.

    Raises:
        TPUModelError: not a module; or `strict_validation`, and something was found.
    """
    if not isinstance(model, nn.Module):
        raise TPUModelError(f"expected a torch.nn.Module, got {type(model).__name__}")
    findings = Findings(tuple(_impossible(model)), tuple(_slow_weights(model)))
    return _strictly(findings, config, TPUModelError)


def _impossible(model: nn.Module) -> Iterator[str]:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.dtype in _IMPOSSIBLE:
            yield f"{name} is {tensor.dtype}, which a TPU does not have"


def _slow_weights(model: nn.Module) -> Iterator[str]:
    for name, weight in model.named_parameters():
        if weight.dtype is torch.float64:
            yield f"{name} is float64, which a TPU computes in software"
        layout = tiled(weight.shape, weight.dtype)
        if weight.dim() >= 2 and layout.waste > _WASTE:
            yield f"{name} {tuple(weight.shape)} leaves {layout.waste:.0%} of its tiles empty"


def _strictly(
    findings: Findings,
    config: TPUConfig,
    error: type[TPUConfigurationError] | type[TPUModelError],
) -> Findings:
    found = findings.errors + findings.warnings
    if config.strict_validation and found:
        raise error("; ".join(found))
    return findings

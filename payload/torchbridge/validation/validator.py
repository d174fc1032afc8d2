"""Validate models, the machine, configurations and the presets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchbridge.config import Config, ValidationLevel
from torchbridge.device import pick_device
from torchbridge.hardware import Hardware, probe
from torchbridge.validation import configuration, machine, model
from torchbridge.validation.findings import FAIL, Finding, Report, examine, failed, passed

PRESETS = {
    "inference": Config.for_inference,
    "training": Config.for_training,
    "development": Config.for_development,
}


class UnifiedValidator:
    """Run checks on one device, by default this machine's best.

    `hardware` is what the device is expected to be. `level` sets how many checks of a model are
    made: minimal (3), standard (5), strict (7), comprehensive (8).

    Raises:
        ValueError: the level is unknown.
    """

    def __init__(
        self,
        level: ValidationLevel | str = ValidationLevel.STANDARD,
        *,
        device: torch.device | None = None,
        hardware: Hardware | None = None,
    ) -> None:
        self.level = ValidationLevel(level)
        self.device = device or pick_device()
        self.hardware = hardware or probe(self.device)

    def validate_model(self, subject: nn.Module, sample_inputs: Sequence[Tensor]) -> Report:
        """Run the level's checks; the model is moved to the device, otherwise unchanged."""
        inputs = tuple(x.to(self.device) for x in sample_inputs)
        seen = model.Subject(subject.to(self.device), inputs, self.device, self.hardware)
        return examine(f"model validation ({self.level.value})", model.checks_of(self.level), seen)

    def validate_hardware(self) -> Report:
        """Run three checks of any device, five of a CUDA device."""
        subject = machine.Machine(self.device, self.hardware)
        return examine("hardware compatibility", machine.checks_of(subject), subject)

    def validate_config(self, config: Config) -> Report:
        """Check precision, memory and hardware settings on this machine."""
        request = configuration.RequestedConfiguration(config, self.device, self.hardware)
        return examine("configuration", configuration.CHECKS, request)

    def validate_presets(self) -> Report:
        """Check that each preset suits this machine and survives conversion to a dict and back."""
        checks = {
            name: lambda preset=preset: self._preset(preset()) for name, preset in PRESETS.items()
        }
        return examine("configuration presets", checks)

    def _preset(self, config: Config) -> Finding:
        if Config.from_dict(config.to_dict()) != config:
            return failed("differs after to_dict and from_dict", "give plain values")
        report = self.validate_config(config)
        details = {finding.name: finding.message for finding in report}
        if not report.ok:
            lacking = ", ".join(report.names(FAIL))
            return failed(f"this machine cannot do its {lacking}", "change them", **details)
        level = config.optimization_level.value
        return passed(f"{level}, {report.score} checks of it pass", **details)

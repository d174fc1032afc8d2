"""Checks of models, machines and configurations."""

from torchbridge.validation.findings import Finding, Report, doubtful, examine, failed, passed
from torchbridge.validation.validator import PRESETS, UnifiedValidator

__all__ = [
    "PRESETS",
    "Finding",
    "Report",
    "UnifiedValidator",
    "doubtful",
    "examine",
    "failed",
    "passed",
]

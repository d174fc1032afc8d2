"""Checks of models, machines and configurations, each of which can fail."""

from torchbridge.numbers import TOLERANCE, relative_error
from torchbridge.validation.findings import (
    FAIL,
    PASS,
    WARNING,
    Finding,
    Report,
    doubtful,
    examine,
    failed,
    passed,
)
from torchbridge.validation.validator import PRESETS, UnifiedValidator

__all__ = [
    "FAIL",
    "PASS",
    "PRESETS",
    "TOLERANCE",
    "WARNING",
    "Finding",
    "Report",
    "UnifiedValidator",
    "doubtful",
    "examine",
    "failed",
    "passed",
    "relative_error",
]

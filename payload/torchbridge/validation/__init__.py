"""Checks of models, machines and configurations."""

from torchbridge.validation.findings import Finding, Report, examine, failed, passed, warned
from torchbridge.validation.validator import PRESETS, UnifiedValidator

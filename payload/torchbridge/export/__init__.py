"""Exporters: each re-loads what it wrote and compares it on several inputs and shapes."""

from torchbridge.export.aotinductor import export_to_aotinductor, load_aotinductor
from torchbridge.export.inputs import Plan, draw_inputs
from torchbridge.export.metadata import (
    FusionMetadata,
    HardwareMetadata,
    OptimizationMetadata,
    create_metadata_from_model,
)
from torchbridge.export.onnx import export_to_onnx, load_onnx
from torchbridge.export.result import (
    Exported,
    ExportMismatch,
    ExportResult,
    ExportUnavailable,
    Verified,
)
from torchbridge.export.safetensors import export_to_safetensors, load_safetensors
from torchbridge.export.torch_export import export_to_torch_export, load_torch_export
from torchbridge.export.torchscript import export_to_torchscript, load_torchscript
from torchbridge.export.verify import verify

EXPORTERS = {
    "torch_export": export_to_torch_export,
    "aotinductor": export_to_aotinductor,
    "onnx": export_to_onnx,
    "safetensors": export_to_safetensors,
    "torchscript": export_to_torchscript,
}

__all__ = [
    "EXPORTERS",
    "ExportMismatch",
    "ExportResult",
    "ExportUnavailable",
    "Exported",
    "FusionMetadata",
    "HardwareMetadata",
    "OptimizationMetadata",
    "Plan",
    "Verified",
    "create_metadata_from_model",
    "draw_inputs",
    "export_to_aotinductor",
    "export_to_onnx",
    "export_to_safetensors",
    "export_to_torch_export",
    "export_to_torchscript",
    "load_aotinductor",
    "load_onnx",
    "load_safetensors",
    "load_torch_export",
    "load_torchscript",
    "verify",
]

"""Exporters that re-load the written file and compare it with the model on several inputs."""

from torchbridge.export.formats import (
    EXPORTERS,
    export_to_onnx,
    export_to_safetensors,
    export_to_torch_export,
    export_to_torchscript,
    load_onnx,
    load_safetensors,
    load_torch_export,
    load_torchscript,
)
from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import (
    FusionMetadata,
    HardwareMetadata,
    OptimizationMetadata,
    create_metadata_from_model,
)
from torchbridge.export.publish import (
    ExportMismatch,
    ExportResult,
    ExportUnavailable,
    LoadedFile,
    verify,
)

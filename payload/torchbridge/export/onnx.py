"""ONNX: by torch's dynamo exporter, with dynamic axes, verified in ONNX Runtime on the CPU."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import KEY, OptimizationMetadata
from torchbridge.export.publish import need_suffix, publish, require
from torchbridge.export.result import Exported, ExportResult, ExportUnavailable

if TYPE_CHECKING:
    from torch.export import Dim

FORMAT = "onnx"
LIMIT_BYTES = 2**31 - 2**20  # of one protobuf file, less its graph
ADVICE = "Declare every axis that moves by dynamic=, and keep Python numbers out of forward."


def export_to_onnx(
    model: nn.Module,
    path: str | Path,
    sample_inputs: Tensor | Sequence[Tensor],
    *,
    dynamic: Sequence[Mapping[int, Dim]] | None = None,
    checks: Sequence[Sequence[Tensor]] | None = None,
    tolerance: float | None = None,
    metadata: OptimizationMetadata | None = None,
) -> ExportResult:
    """Write `path` (`.onnx`) and verify it; `dynamic` and `checks` as in `Plan.of`.

    A copy of the model on the CPU is exported and compared: the file knows no device.

    Raises:
        ExportUnavailable: a package is missing, or the model is bfloat16 or over 2 GiB.
        ExportMismatch: ONNX Runtime disagrees with the model.
        ValueError: the path does not end in `.onnx`, or axes or checks do not fit.
    """
    need_suffix(FORMAT, path, ".onnx")
    require(FORMAT, "onnx", "onnxscript", "onnxruntime")
    _refuse(model)
    plan = Plan.of(_on_cpu(sample_inputs), dynamic, checks and [_on_cpu(one) for one in checks])
    model = copy.deepcopy(model).cpu()

    def write(draft: Path, facts: str) -> None:
        _write(model, plan, facts, draft)

    settings = {"tolerance": tolerance, "metadata": metadata, "advice": ADVICE}
    return publish(FORMAT, path, model, plan, write=write, load=load_onnx, **settings)


def load_onnx(path: str | Path) -> Exported:
    """An ONNX Runtime session on the CPU; it takes tensors and gives tensors of the CPU."""
    require(FORMAT, "onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*inputs: Tensor) -> Any:
        arrays = [tensor.detach().cpu().contiguous().numpy() for tensor in inputs]
        outputs = session.run(None, dict(zip(names, arrays, strict=True)))
        tensors = tuple(torch.from_numpy(array) for array in outputs)
        return tensors[0] if len(tensors) == 1 else tensors

    told = session.get_modelmeta().custom_metadata_map
    facts = OptimizationMetadata.from_json(told[KEY]) if KEY in told else None
    return Exported(FORMAT, run, facts)


def _write(model: nn.Module, plan: Plan, facts: str, draft: Path) -> None:
    import onnx

    with _quietly():
        program = torch.onnx.export(
            model,
            plan.example,
            dynamo=True,
            dynamic_shapes=plan.dynamic if any(plan.dynamic) else None,
            verbose=False,
        )
        program.save(str(draft), external_data=False)
    proto = onnx.load(draft)
    for node in proto.graph.node:
        del node.metadata_props[:]  # stack traces: they name the files of this machine
    onnx.helper.set_model_props(proto, {KEY: facts})
    onnx.checker.check_model(proto)
    onnx.save(proto, draft)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's notes to its own developers; whether the file is good is verified."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _refuse(model: nn.Module) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    if any(one.dtype == torch.bfloat16 for one in tensors):
        missing = "ONNX Runtime has no bfloat16 on the CPU to verify with"
        raise ExportUnavailable(FORMAT, missing, "cast the model to float32 or float16 first")
    size = sum(one.numel() * one.element_size() for one in tensors)
    if size > LIMIT_BYTES:
        missing = f"{size / 2**30:.1f} GiB of weights do not fit the 2 GiB of one file"
        raise ExportUnavailable(FORMAT, missing, "use export_to_torch_export")


def _on_cpu(inputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
    return tuple(tensor.cpu() for tensor in inputs)

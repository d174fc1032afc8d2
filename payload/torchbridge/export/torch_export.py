"""torch.export: a graph of ATen operations with its weights, in one `.pt2` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import KEY, OptimizationMetadata
from torchbridge.export.publish import need_suffix, publish
from torchbridge.export.result import Exported, ExportResult

if TYPE_CHECKING:
    from torch.export import Dim, ExportedProgram

FORMAT = "torch_export"
ADVICE = (
    "Something in forward depends on the example; declare axes that cannot be that short or long"
    " with Dim(min=, max=), and keep Python numbers out of forward."
)


def trace(model: nn.Module, plan: Plan) -> ExportedProgram:
    """The model's graph, for all sizes of the dynamic axes.

    Raises:
        torch._dynamo.exc.UserError: the model fixes an axis that was declared dynamic.
    """
    shapes = plan.dynamic if any(plan.dynamic) else None
    return torch.export.export(model, plan.example, dynamic_shapes=shapes, strict=False)


def export_to_torch_export(
    model: nn.Module,
    path: str | Path,
    sample_inputs: Tensor | Sequence[Tensor],
    *,
    dynamic: Sequence[Mapping[int, Dim]] | None = None,
    checks: Sequence[Sequence[Tensor]] | None = None,
    tolerance: float | None = None,
    metadata: OptimizationMetadata | None = None,
) -> ExportResult:
    """Write `path` (`.pt2`) and verify it; `dynamic` and `checks` as in `Plan.of`.

    Raises:
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: the path does not end in `.pt2`, or axes or checks do not fit.
    """
    need_suffix(FORMAT, path, ".pt2")
    plan = Plan.of(sample_inputs, dynamic, checks)

    def write(draft: Path, facts: str) -> None:
        torch.export.save(trace(model, plan), draft, extra_files={KEY: facts})

    settings = {"tolerance": tolerance, "metadata": metadata, "advice": ADVICE}
    return publish(FORMAT, path, model, plan, write=write, load=load_torch_export, **settings)


def load_torch_export(path: str | Path) -> Exported:
    """Read a program back; it runs on the device it was exported on."""
    extra = {KEY: ""}
    program = torch.export.load(Path(path), extra_files=extra)
    facts = OptimizationMetadata.from_json(extra[KEY]) if extra[KEY] else None
    return Exported(FORMAT, program.module(), facts)

"""TorchScript, for consumers that know nothing newer: torch itself has deprecated it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import KEY, OptimizationMetadata
from torchbridge.export.publish import publish
from torchbridge.export.result import Exported, ExportResult

if TYPE_CHECKING:
    from torch.export import Dim

FORMAT = "torchscript"
ADVICE = (
    'A trace keeps the branches and Python numbers of its example: use method="script", or'
    " export_to_torch_export."
)


def export_to_torchscript(
    model: nn.Module,
    path: str | Path,
    sample_inputs: Tensor | Sequence[Tensor],
    *,
    method: str = "trace",
    freeze: bool = False,
    dynamic: Sequence[Mapping[int, Dim]] | None = None,
    checks: Sequence[Sequence[Tensor]] | None = None,
    tolerance: float | None = None,
    metadata: OptimizationMetadata | None = None,
) -> ExportResult:
    """Write `path` by "trace" or "script" and verify it; `dynamic` and `checks` as in `Plan.of`.

    `freeze` makes constants of the weights, after which there are no parameters any more.

    Raises:
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: another method, or axes or checks that do not fit.
    """
    if method not in ("trace", "script"):
        raise ValueError(f'{FORMAT}: method must be "trace" or "script", got {method!r}')
    plan = Plan.of(sample_inputs, dynamic, checks)

    def write(draft: Path, facts: str) -> None:
        with _undeprecated():
            # no gradients while tracing (publish sees to it): with them, layers that have a fast
            # path for inference take another way when torch checks the trace
            if method == "trace":
                script = torch.jit.trace(model, plan.example, strict=False)  # dictionaries as well
            else:
                script = torch.jit.script(model)
            script = torch.jit.freeze(script) if freeze else script
            torch.jit.save(script, str(draft), _extra_files={KEY: facts})

    settings = {"tolerance": tolerance, "metadata": metadata, "advice": ADVICE}
    return publish(FORMAT, path, model, plan, write=write, load=load_torchscript, **settings)


def load_torchscript(path: str | Path) -> Exported:
    """Read a script back; it runs on the device it was exported on."""
    extra = {KEY: ""}
    with _undeprecated():
        script = torch.jit.load(str(path), _extra_files=extra)
    facts = OptimizationMetadata.from_json(extra[KEY]) if extra[KEY] else None
    return Exported(FORMAT, script, facts)


@contextlib.contextmanager
def _undeprecated() -> Iterator[None]:
    """Without torch's advice to use torch.export: whoever calls this asked for the old format."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        yield

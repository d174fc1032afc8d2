"""AOTInductor: the exported graph compiled to a shared library, in one `.pt2` file."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import KEY, OptimizationMetadata
from torchbridge.export.publish import need_suffix, publish
from torchbridge.export.result import Exported, ExportResult, ExportUnavailable
from torchbridge.export.torch_export import ADVICE, trace

if TYPE_CHECKING:
    from torch.export import Dim

FORMAT = "aotinductor"


def find_compiler(environment: Mapping[str, str] = os.environ) -> str | None:
    """The C++ compiler that Inductor would take: `$CXX`, else g++ on the path."""
    return shutil.which(environment.get("CXX", "g++"), path=environment.get("PATH"))


def export_to_aotinductor(
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
        ExportUnavailable: no C++ compiler, or a torch without AOTInductor packages.
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: the path does not end in `.pt2`, or axes or checks do not fit.
    """
    need_suffix(FORMAT, path, ".pt2")
    compile_and_package = _probed()
    plan = Plan.of(sample_inputs, dynamic, checks)

    def write(draft: Path, facts: str) -> None:
        settings = {"aot_inductor.metadata": {KEY: facts}}
        program = trace(model, plan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch's compiler about itself
            compile_and_package(program, package_path=str(draft), inductor_configs=settings)

    settings = {"tolerance": tolerance, "metadata": metadata, "advice": ADVICE}
    return publish(FORMAT, path, model, plan, write=write, load=load_aotinductor, **settings)


def load_aotinductor(path: str | Path) -> Exported:
    """Load the library; it runs on the kind of device it was compiled for."""
    from torch._inductor import aoti_load_package

    package = aoti_load_package(str(path))
    told = package.loader.get_metadata()
    facts = OptimizationMetadata.from_json(told[KEY]) if KEY in told else None
    return Exported(FORMAT, package, facts)


def _probed():
    """torch's packager, if it is there and can compile."""
    from torch import _inductor

    packager = getattr(_inductor, "aoti_compile_and_package", None)
    if packager is None:
        missing = f"torch {torch.__version__} has no aoti_compile_and_package"
        raise ExportUnavailable(
            FORMAT, missing, "use torch 2.6 or later, or export_to_torch_export"
        )
    if find_compiler() is None:
        remedy = "install g++ or name a compiler in CXX, or use export_to_torch_export"
        raise ExportUnavailable(FORMAT, "no C++ compiler found", remedy)
    return packager

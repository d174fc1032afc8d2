"""Write to a draft, load it again, compare, and only then put it in its place."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import OptimizationMetadata, create_metadata_from_model
from torchbridge.export.result import (
    Exported,
    ExportMismatch,
    ExportResult,
    ExportUnavailable,
)
from torchbridge.export.verify import answers, evaluating, verify


def publish(
    file_format: str,
    path: str | Path,
    model: nn.Module,
    plan: Plan,
    *,
    write: Callable[[Path, str], None],
    load: Callable[[Path], Exported],
    tolerance: float | None,
    metadata: OptimizationMetadata | None,
    advice: str,
) -> ExportResult:
    """Export `model`; at `path` there is the verified file afterwards, or what was there before.

    `write` gets a path and the metadata as JSON: those given, or what the model shows.

    Raises:
        ExportMismatch: the file disagrees with the model, or cannot be loaded.
    """
    path = Path(path)
    expected = answers(model, plan.checks)  # before anything can touch the model
    facts = metadata or create_metadata_from_model(
        model, plan.example, dynamic=plan.dynamic, file_format=file_format
    )
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        draft = Path(folder) / path.name
        start = time.perf_counter()
        with evaluating(model):
            write(draft, facts.to_json())
        seconds = time.perf_counter() - start
        run = _loaded(load, draft)
        verified = verify(
            file_format, run, plan.checks, expected, tolerance=tolerance, advice=advice
        )
        draft.replace(path)
    return ExportResult(path, file_format, path.stat().st_size, seconds, verified)


def _loaded(load: Callable[[Path], Exported], draft: Path) -> Callable[..., Any]:
    """The file as something to run; one that cannot be loaded fails on every input."""
    try:
        return load(draft)
    except (ExportMismatch, ExportUnavailable):
        raise
    except Exception as error:
        text = f"it cannot be loaded ({type(error).__name__}: {error})"

    def unloadable(*_inputs: Any) -> None:
        raise RuntimeError(text)

    return unloadable


def require(file_format: str, *modules: str) -> None:
    """Refuse a format whose packages are missing.

    Raises:
        ExportUnavailable: it names them and how to get them.
    """
    missing = [name for name in modules if not _importable(name)]
    if missing:
        remedy = f"install them: pip install {' '.join(missing)}"
        raise ExportUnavailable(file_format, f"{', '.join(missing)} not installed", remedy)


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def need_suffix(file_format: str, path: str | Path, suffix: str) -> None:
    """Refuse another ending than the format's loader accepts.

    Raises:
        ValueError: the path ends differently.
    """
    if Path(path).suffix != suffix:
        raise ValueError(f"{file_format}: the path must end in {suffix!r}, got {str(path)!r}")

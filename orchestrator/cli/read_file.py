"""Reads files that a person names; every failure is a CliError."""

from __future__ import annotations

from pathlib import Path

from orchestrator.cli.errors import CliError
from orchestrator.domain.document_problems import nearest_file
from orchestrator.domain.units import size

_DOCUMENTS = (".yaml", ".yml", ".json")


def read_document(file: Path, what: str, *, limit_bytes: int) -> str:
    """Return the text of a file. Raises CliError.

    Args:
        file: Its path.
        what: Kind of the file for messages, such as ``matrix``.
        limit_bytes: Its maximum size.
    """
    if not file.exists():
        near = nearest_file(file.name, _neighbours(file)) if file.parent.is_dir() else ""
        raise CliError(f"{file}: there is no such file{near}")
    if file.is_dir():
        raise CliError(f"{file}: is a folder; name the {what} file in it")
    try:
        if file.stat().st_size > limit_bytes:
            raise CliError(f"{file}: is too large for a {what} ({size(file.stat().st_size)})")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode().splitlines(keepends=True) or [""]
        if before[-1].endswith("\n"):
            before.append("")
        place = f"{file}:{len(before)}:{len(before[-1]) + 1}"
        raise CliError(f"{place}: is not UTF-8 text") from None
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None


def _neighbours(file: Path) -> list[str]:
    return [other.name for other in file.parent.iterdir() if other.suffix in _DOCUMENTS]


def refuse_file(folder: Path | None) -> None:
    """Raise CliError if the folder that `-o` names is a file."""
    if folder is not None and folder.is_file():
        raise CliError(f"{folder}: is a file; -o names the folder to write into")

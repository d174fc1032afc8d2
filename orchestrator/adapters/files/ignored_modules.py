"""Find modules that a payload imports and that are not shipped, since git ignores them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

_MODULES = (".py", ".pyd", ".so")


def ignored_modules(root: Path, shipped: Iterable[str], ignored: Iterable[str]) -> tuple[str, ...]:
    """Return the ignored modules that shipped files import by name, sorted.

    Args:
        root: The folder that is shipped.
        shipped: Names of the shipped files, relative to it.
        ignored: Names of ignored files, and of folders with a ``/`` at their end, relative to it.
            Only those beside a shipped module can be part of the payload.
    """
    sources = [PurePosixPath(name) for name in shipped if name.endswith(".py")]
    beside = {folder for path in sources for folder in path.parents}
    candidates = {
        name: path.name.partition(".")[0]
        for name in ignored
        if (name.endswith("/") or name.endswith(_MODULES))
        and (path := PurePosixPath(name)).parent in beside
        and not path.name.startswith(".")
    }
    if not candidates:
        return ()
    imported = {word for path in sources for word in _imported(root / path, candidates.values())}
    named = sorted(name for name, module in candidates.items() if module in imported)
    return tuple(name for name in named if not name.endswith("/") or _has_modules(root / name))


def _has_modules(folder: Path) -> bool:
    is_environment = (folder / "pyvenv.cfg").exists()
    return not is_environment and any(file.suffix in _MODULES for file in folder.rglob("*"))


def _imported(file: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the parts of the names that a file imports; none if it cannot be read or parsed."""
    try:
        text = file.read_bytes()
        if not any(name.encode() in text for name in names):
            return
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            whole = [alias.name for alias in node.names]
            whole += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (part for name in whole for part in name.split("."))

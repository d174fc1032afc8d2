"""Git work trees: the commit and state of a checkout, and files that git ignores."""

from __future__ import annotations

import ast
import fnmatch
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from orchestrator.domain.commit import Commit
from orchestrator.domain.manifest import is_test_file

# A git hook sets these variables, and they would point git to another repository.
_UNSET = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
)
_ENV = ("env", *(word for name in _UNSET for word in ("-u", name)))
_GIT = (
    "GIT_ALLOW_PROTOCOL=none",  # a partial clone would fetch what it lacks
    "git",
    "--no-optional-locks",
    *(word for setting in _SETTINGS for word in ("-c", setting)),
)


_PROGRAMS = r"^(filter\..*\.(clean|process)|lfs\.extension\..*)$"
_LFS = ("git-lfs clean -- %f", "git-lfs filter-process", "git-lfs filter-process --skip")
"""The commands that `git lfs install` configures."""


def read_with_git(
    folder: Path, *words: str, variables: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command that only reads, in a folder of a work tree.

    A repository's configuration can name programs for git to run, and the folder can contain
    another repository, such as a bare one within a commit. Therefore git runs no file system
    monitor, hook, signature check or transport, and uses no bare repository. A command that
    compares files also runs filters: see `is_dirty`.

    Args:
        folder: In a work tree.
        words: The command.
        variables: Additional environment variables, as ``NAME=value``.

    Raises:
        OSError: Git is not installed.
    """
    command = (*_ENV, *variables, *_GIT, "-C", str(folder), *words)
    return subprocess.run(command, capture_output=True, check=False)


def is_dirty(folder: Path) -> bool:
    """Return whether files of the folder differ from its commit, or cannot be compared with it.

    `git status` runs the filter programs that the repository's configuration names. Here it runs
    only those of Git LFS; a changed file with another filter counts as a difference. Submodules
    have their own configuration and are checked one by one.

    Raises:
        OSError: Git is not installed.
    """
    listed = read_with_git(folder, "config", "-z", "--get-regexp", _PROGRAMS)
    if listed.returncode not in (0, 1):
        return True
    options = ("--porcelain", "--no-renames", "--ignore-submodules=dirty")
    disabled = _without_filters(listed.stdout)
    told = read_with_git(folder, "status", *options, "--", ".", variables=disabled)
    if told.returncode != 0 or told.stdout.strip():
        return True
    staged = read_with_git(folder, "ls-files", "-z", "--stage", "--", ".")
    entries = (entry.partition(b"\t") for entry in staged.stdout.split(b"\0"))
    inner = (os.fsdecode(name) for facts, _, name in entries if facts.startswith(b"160000"))
    checked_out = (folder / name for name in inner if (folder / name / ".git").exists())
    return staged.returncode != 0 or any(map(is_dirty, checked_out))


def _without_filters(listed: bytes) -> list[str]:
    """Return the variables that disable the filters of a configuration, other than Git LFS."""
    settings = [entry.partition("\n") for entry in os.fsdecode(listed).split("\0") if entry]
    is_extended = any(key.startswith("lfs.extension.") for key, _, _ in settings)
    foreign = {
        key.rpartition(".")[0]
        for key, _, value in settings
        if key.startswith("filter.") and (is_extended or value not in _LFS)
    }
    disabled = [
        (f"{name}.{key}", value)
        for name in sorted(foreign)
        for key, value in (("clean", ""), ("process", ""), ("required", "false"))
    ]
    variables = [f"GIT_CONFIG_COUNT={len(disabled)}"] if disabled else []
    for number, (key, value) in enumerate(disabled):
        variables += [f"GIT_CONFIG_KEY_{number}={key}", f"GIT_CONFIG_VALUE_{number}={value}"]
    return variables


def checkout_of(source: Path) -> Commit:
    """Return the commit of the folder's work tree; an empty one outside a work tree.

    For a folder that git ignores the commit is empty: its files belong to no commit. A work
    tree whose state git cannot determine counts as dirty.
    """
    if not source.is_dir() or _last_line(source, "check-ignore", "--quiet", ".") is not None:
        return Commit()
    sha = _last_line(source, "rev-parse", "--verify", "--quiet", "HEAD")
    if not sha:
        return Commit()
    return Commit(
        sha=sha,
        branch=_last_line(source, "symbolic-ref", "--short", "--quiet", "HEAD") or "",
        author=_last_line(source, "log", "-1", "--format=%an") or "",
        is_dirty=is_dirty(source),
    )


def _last_line(folder: Path, *words: str) -> str | None:
    """Return git's output; None if git fails or is not installed."""
    try:
        done = read_with_git(folder, *words)
    except OSError:
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


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


_TEST_FOLDERS = ("test", "tests")
_BUILT = ("build", "dist", "node_modules")
_PROJECT = ("payload.toml", "pyproject.toml", "setup.py", "setup.cfg")
_MADE = (
    ".*", "__pycache__", "htmlcov", "*.egg-info", "*.py[cod]", "*.so", "*.o", "*.log", "*.tmp",
    "*.bak", "*.orig", "*.rej", "*.swp", "*~", "coverage*.xml", "junit*.xml", "tmp", "temp",
)  # fmt: skip
"""Name patterns of files that programs generate and that no test reads."""


def ignored_beside_tests(
    root: Path, shipped: Iterable[str], ignored: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ignored files near shipped tests: those named like a test, and the others.

    A file is near shipped tests if it is at any level below a folder that contains a shipped test
    itself, or that is called ``tests`` and contains one at any level. An ignored folder without
    tests is returned as one name; in the root only files are returned. Both results are sorted.
    Virtual environments, hidden folders and build outputs beside a ``pyproject.toml`` are left out.

    Args:
        root: The folder that is shipped.
        shipped: Names of the shipped files, relative to it.
        ignored: As for `ignored_modules`.
    """
    paths = [PurePosixPath(name) for name in shipped]
    tests = [path for path in paths if is_test_file(path.name)]
    among = {path.parent for path in tests}
    among |= {one for path in tests for one in path.parents if one.name in _TEST_FOLDERS}
    projects = {path.parent for path in paths if path.name in _PROJECT}
    built = {folder / name for folder in projects for name in _BUILT}
    found: list[str] = []
    data: list[str] = []
    for name in ignored:
        path = PurePosixPath(name)
        if among.isdisjoint(path.parents) or not built.isdisjoint((path, *path.parents)):
            continue
        inside = list(_below(root, path)) if name.endswith("/") else [path]
        named = [one.as_posix() for one in inside if is_test_file(one.name)]
        found += named
        near = path.parents[:-1] if name.endswith("/") else (path.parent, *path.parents[:-1])
        left = (one.relative_to(path.parent).parts for one in inside)
        is_kept = any(not any(map(_is_made, parts)) for parts in left)
        data += [name] if is_kept and not named and not among.isdisjoint(near) else []
    # git lists a folder of ignored files alone and those files, too
    data = [n for n in data if not any(f"{one}/" in data for one in PurePosixPath(n).parents)]
    return tuple(sorted(found)), tuple(sorted(data))


def _is_made(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _MADE)


def _below(root: Path, folder: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the files below an ignored folder, without hidden folders and environments."""
    if folder.name.startswith("."):
        return
    for here, folders, files in os.walk(root / folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        at = PurePosixPath(Path(here).relative_to(root).as_posix())
        yield from (at / name for name in files)

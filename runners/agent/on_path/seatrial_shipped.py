"""Finds modules that come from the payload and not from the installed subject, or the reverse.

If no wheel is under validation, the payload itself is the subject: an earlier release in the
interpreter, or an editable installation of another folder, must not be tested instead. If a wheel
is, then modules, requirements and metadata that it lacks must not come from the payload.

PYTEST_DONT_REWRITE: loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001, PTH100, PTH113, PTH118, PTH119, PTH120, PTH206 - not a package; plain text is quick

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Mapping, Optional, Set, Tuple

from seatrial_distributions import Distribution, distributions, normal
from seatrial_origins import (
    BESIDE,
    EXECUTED,
    IMPORTERS,
    InstalledFiles,
    ModuleProblem,
    below_payload,
    called,
    contents,
    files_of,
    importers,
    is_below,
    names_of,
    real_file,
    real_folder,
    source_of,
)

if TYPE_CHECKING:
    import ast

_FOLDERS = ("", "src", "lib", "python")
"""Folders of the payload that have its packages, as agent/payload_copy.py has them."""
_SITES = ("site-packages", "dist-packages")
_STANDARD = os.path.dirname(os.path.realpath(os.__file__))
_EXCLUDED = BESIDE | {"__main__", "__mp_main__", "setup", "sitecustomize", "usercustomize"}
_BUILT = frozenset(("__about__", "_version", "version"))
"""Names of modules that a build generates, with the version."""
_VERSION = rb"(?m)^__version__\s*=.*$"
_OWN = os.path.dirname(os.path.realpath(__file__))
_PROGRAMS = ("__main__", "__mp_main__")
"""Names under which Python loads the program itself, which any module may import."""
_TESTS = frozenset(("test", "tests", "conftest.py"))
_TEST_NAMES = frozenset(("test", "tests", "testing"))
_ASIDE = BESIDE | {"benchmark", "demo", "demos", "example", "old", "script", "tools"}
"""Folders whose files may have the names of the subject's files without being copies of them."""
_CHANGES = ("add", "append", "extend", "insert", "update")
_OWN_NAMES = ("__name__", "__package__")
_DEFINED = rb"(?m)^(?:async def|def|class)[ \t]+(\w+)"
_CODE = rb"(?m)^[ \t]*[^\s#]"
_IMPORT = rb"(?m)^[ \t]*(?:from[ \t]+|import[ \t]+(?:[\w.]+[ \t]*,[ \t]*)*)(%s)\b|[\"'](?:%s)[\"']"
_ABSENT = ("ImportError", "ModuleNotFoundError")


def copies(
    loaded: Mapping[str, object], payload: str, tops: FrozenSet[str], own: FrozenSet[str]
) -> Iterator[ModuleProblem]:
    """Yield the modules that were loaded from a copy whose source differs from the shipped one.

    Args:
        loaded: ``sys.modules``, or a part of it.
        payload: The payload's folder.
        tops: Names that the payload may ship, without what follows a dot; ``*`` for any.
        own: Files of tests and conftests.
    """
    tops = tops - _EXCLUDED
    for name, module in list(loaded.items()) if tops else ():
        top, *parts = name.split(".")
        if (top not in tops and "*" not in tops) or top in _EXCLUDED:
            continue
        if parts[-1:] and parts[-1] in _BUILT:
            continue
        for file in files_of(module)[:1]:
            shipped = () if file in own or _is_no_copy(file) else _shipped(name, payload)
            shown = below_payload(file)
            is_inside = shown != file
            if not shipped or shown in shipped or (is_inside and not _TESTS.isdisjoint(parts)):
                continue
            others = (os.path.join(payload, one) for one in shipped)
            if all(_is_another(file, other, is_inside=is_inside) for other in others):
                what = (
                    f"{name} was loaded from {shown}, and the payload, which is the subject, has"
                    f" another {shipped[0]}"
                )
                where = "the payload" if is_inside else "the interpreter and of [setup]"
                fix = (
                    f"take that copy out of {where}, or put the folder of {shipped[0]} before it on"
                    " the path (pytest's pythonpath, PYTHONPATH in payload.toml's env); where"
                    " pytest itself needs the package, name a wheel of it as the subject"
                )
                yield ModuleProblem(name, file, what, fix)


def _is_no_copy(file: str) -> bool:
    """Return whether a file belongs to Python or Seatrial, or is not a source."""
    real = real_file(file)
    is_standard = is_below(real, _STANDARD) and not set(_SITES) & set(real.split(os.sep))
    return is_standard or is_below(real, _OWN) or not file.endswith(".py")


def _is_another(file: str, other: str, *, is_inside: bool) -> bool:
    """Return whether a file differs from another; inside the payload, in code of shared names."""
    if not is_inside:
        return _text(file) != _text(other)
    return _code_differs(file, other) and _define_the_same(file, other)


def _text(file: str) -> bytes:
    """Return a source without the version text that a build may have written into it."""
    return re.sub(_VERSION, b"", source_of(file)).replace(b"\r\n", b"\n")


def _shipped(name: str, payload: str) -> Tuple[str, ...]:
    """Return the paths of a module in the payload's usual folders."""
    stem = name.replace(".", os.sep)
    paths = (
        os.path.join(folder, stem + end)
        for folder in _FOLDERS
        for end in (f"{os.sep}__init__.py", ".py")
    )
    return tuple(path for path in paths if os.path.isfile(os.path.join(payload, path)))


def taken_from_payload(
    installed: InstalledFiles, loaded: Mapping[str, object], payload: str, own: FrozenSet[str]
) -> Iterator[ModuleProblem]:
    """Yield the modules and metadata that the installed subject uses and only the payload has.

    Args:
        installed: The subject's files.
        loaded: ``sys.modules``, or a part of it.
        payload: The payload's folder.
        own: Files of tests and conftests.
    """
    yield from _executed_copies(installed, loaded, payload, own)
    strangers = _strangers(installed, loaded, payload, own)
    if strangers:
        told = set()
        for problem in _imported_modules(installed, loaded, strangers):
            told.add(problem.file)
            yield problem
        left = {name: file for name, file in strangers.items() if file not in told}
        yield from _namespace_parts(installed, left)
    yield from _other_metadata(installed, payload)


def replaced_tests(
    installed: InstalledFiles, loaded: Mapping[str, object], payload: str
) -> Iterator[str]:
    """Yield the payload's test modules that were not loaded because the subject ships a namesake.

    A wheel may contain a top-level ``tests`` by mistake; it is none of the subject's import names.
    """
    for name, module in list(loaded.items()):
        for file in files_of(module)[:1] if name.partition(".")[0] in BESIDE else ():
            shipped = _shipped(name, payload) if installed.path_of(file) is not None else ()
            if any(_code_differs(os.path.join(payload, one), file) for one in shipped[:1]):
                yield shipped[0]


def _executed_copies(
    installed: InstalledFiles, loaded: Mapping[str, object], payload: str, own: FrozenSet[str]
) -> Iterator[ModuleProblem]:
    """Yield the payload's own copies of the subject's files that were executed, under any name."""
    files = dict.fromkeys(EXECUTED, "")
    for name, module in list(loaded.items()):
        if name in _PROGRAMS:
            files.update((os.path.abspath(file), name) for file in files_of(module)[-1:])
        else:
            file = contents(module).get("__file__")
            files.update({file: name} if type(file) is str else {})
    inside = (payload + os.sep, real_folder(payload) + os.sep)
    for file, name in files.items():
        if not file.startswith(inside) or file in own or (name and installed.is_mine(name)):
            continue
        shown = below_payload(file)
        path = _installed_path(installed, shown)
        if path and _differ(file, os.path.join(installed.home, path), shown, path):
            dotted = _dotted(path)
            what = (
                f"{shown} of the payload ran, and {installed.name} {installed.version} installed"
                f" another {path}"
            )
            fix = (
                f"use what is installed: import {dotted}, or run python -m {dotted}; what is to"
                " run from the payload on purpose needs another name"
            )
            yield ModuleProblem(name or dotted, file, what, fix)


def _installed_path(installed: InstalledFiles, shown: str) -> str:
    """Return the installed file of which a payload file is a copy, by its path; empty if none."""
    parts = shown.split(os.sep)
    if not _TESTS.isdisjoint(parts) or _dotted(parts[-1]) in _BUILT:
        return ""
    for start in range(len(parts)):
        if not _ASIDE.isdisjoint(parts[:start]):
            break
        path = "/".join(parts[start:])
        is_whole = start < len(parts) - 1 or os.sep.join(parts[:start]) in _FOLDERS
        if is_whole and path in installed.files and installed.is_mine(_dotted(path)):
            return path
    return ""


def _differ(file: str, other: str, shown: str, path: str) -> bool:
    """Return whether a copy has different code; outside of the usual folders, of shared names."""
    before = shown[: -len(path)].rstrip(os.sep)
    is_usual = os.path.basename(before) in _FOLDERS
    return _code_differs(file, other) and (is_usual or _define_the_same(file, other))


def _code_differs(file: str, other: str) -> bool:
    text = _text(file)
    return text != _text(other) and re.search(_CODE, text) is not None


def _define_the_same(file: str, other: str) -> bool:
    """Return whether two sources define a function or class of the same name."""
    ours, others = (re.findall(_DEFINED, _text(each)) for each in (file, other))
    return not set(ours).isdisjoint(others)


def _dotted(path: str) -> str:
    """Return the import name of a file, from its path below a folder of ``sys.path``."""
    return re.sub(r"(/__init__)?\.\w+$", "", path).replace("/", ".")


def _namespace_parts(
    installed: InstalledFiles, strangers: Mapping[str, str]
) -> Iterator[ModuleProblem]:
    """Yield the modules that only the payload has in a namespace package of the subject.

    Modules of tests, stand-ins for optional dependencies, and modules below a folder such as
    ``examples`` are left out, and so are modules that another distribution installed.
    """
    namespaces = {above for root in installed.roots for above in _names_above(root)} - {""}
    for name, file in strangers.items():
        names = (*_names_above(name), name)
        is_test = name.rpartition(".")[2].startswith("test_")
        if is_test or names[1] in _ASIDE or namespaces.isdisjoint(names):
            continue
        if not installed.dist.optional.isdisjoint(map(normal, names)):
            continue
        shown = below_payload(file)
        parts = re.sub(r"\.\w+$", "", shown).split(os.sep)
        above = shown.rpartition(name.replace(".", os.sep))[0].split(os.sep)
        if _TEST_NAMES.isdisjoint(parts) and _ASIDE.isdisjoint(above):
            what = (
                f"{name} was loaded from {shown}, in a namespace package of {installed.name},"
                f" and {installed.name} {installed.version} installed no such file"
            )
            fix = (
                f"put {name} into {installed.name}'s wheel; install what is another"
                " distribution's as such, by [setup]; name what belongs to the tests otherwise"
            )
            yield ModuleProblem(name, file, what, fix)


def _names_above(name: str) -> Tuple[str, ...]:
    """Return the names of the packages that contain a module, the outermost first."""
    parts = name.split(".")
    return tuple(".".join(parts[:number]) for number in range(len(parts)))


def _imported_modules(
    installed: InstalledFiles, loaded: Mapping[str, object], strangers: Mapping[str, str]
) -> Iterator[ModuleProblem]:
    """Yield the modules that only the payload has and that the subject's modules import.

    Without the payload the installed distribution could not import them, be it a dependency or
    a module of its own namespace package. What an extra of it requires, and what it imports
    only where its absence is allowed for, is a stand-in. A name that a function computes, or that
    its caller, a variable of the environment or a file gives, is not the subject's own.
    """
    names = b"|".join(re.escape(name.encode()) for name in strangers)
    pattern = re.compile(_IMPORT % (names, names))
    is_in_namespace = any("." in name for name in strangers)
    for name, module in installed.of(loaded).items():
        for file in files_of(module)[:1]:
            source = source_of(file)
            package = name if "/__init__." in file else name.rpartition(".")[0]
            is_asked = is_in_namespace or pattern.search(source) is not None
            imported = _imported(source, package) if is_asked else {}
            for stranger in strangers:
                places = tuple(IMPORTERS.get(stranger, ()))  # threads may add some
                lines = {line for place, line in places if place == file}
                if lines and not lines.isdisjoint(_lines_by_literals(source)):
                    imported.setdefault(stranger, True)
            for stranger in strangers.keys() & imported.keys():
                if not imported[stranger] and normal(stranger) in installed.dist.optional:
                    installed.stand_ins.add(strangers[stranger])
                    continue
                shown = below_payload(strangers[stranger])
                what = (
                    f"{name} imports {stranger}, which only the payload has ({shown}):"
                    f" neither {installed.name} {installed.version} nor a requirement installed it"
                )
                fix = (
                    f"put {stranger} into {installed.name}'s wheel, or into its dependencies; an"
                    " optional one has to be in an extra, and imported within a function or"
                    " within try ... except ImportError"
                )
                yield ModuleProblem(name, strangers[stranger], what, fix)


def _strangers(
    installed: InstalledFiles, loaded: Mapping[str, object], payload: str, own: FrozenSet[str]
) -> Dict[str, str]:
    """Return the payload's modules that the subject may import, with their files."""
    tops = {root.partition(".")[0] for root in installed.roots}
    return {
        name: file
        for name, module in list(loaded.items())
        if "." not in name or name.partition(".")[0] in tops
        for file in files_of(module)[:1]
        if is_below(real_folder(file.rpartition(os.sep)[0]), real_folder(payload))
        if file not in own and name not in _PROGRAMS and not installed.is_mine(name)
    }


def _imported(source: bytes, package: str) -> Dict[str, bool]:
    """Return the names that a source in a package imports, except for type checkers.

    The value is whether a failed import of the name would end the module's own import.
    """
    import ast  # noqa: PLC0415 - needed where a name of the payload's is in a source

    found: Dict[str, bool] = {}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return found
    known_importers = importers(tree)
    waiting: List[Tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, is_needed = waiting.pop()
        if isinstance(node, ast.If) and ast.dump(node.test).find("'TYPE_CHECKING'") >= 0:
            waiting += [(each, is_needed) for each in node.orelse]
            continue
        names = names_of(node, package)
        if isinstance(node, ast.Call) and node.args:
            given = getattr(node.args[0], "value", None)
            names = [given] if called(node) in known_importers and type(given) is str else []
        for name in names:
            parts = name.split(".")
            for each in [".".join(parts[: n + 1]) for n in range(len(parts))]:
                found[each] = found.get(each, False) or is_needed
        caught = [ast.dump(each.type) for each in getattr(node, "handlers", ()) if each.type]
        is_free = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        is_free = is_free or any(absent in one for one in caught for absent in _ABSENT)
        free = node.body if is_free else ()  # type: ignore[attr-defined]
        children = ast.iter_child_nodes(node)
        waiting += [(each, is_needed and each not in free) for each in children]
    return found


def _lines_by_literals(source: bytes) -> Set[int]:
    """Return the lines of import calls whose argument the source builds from its own literals.

    Calls in a ``try`` with a handler are left out: the author expects that modules may be missing.
    """
    import ast  # noqa: PLC0415

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    known, known_importers = _made_of_literals(tree), importers(tree)
    found, guarded = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and called(node) in known_importers:
            is_own = _is_made_of(node.args[0], known)
            found.update(range(node.lineno, (node.end_lineno or 0) + 1) if is_own else ())
        elif getattr(node, "handlers", ()):
            body = node.body  # type: ignore[attr-defined]
            guarded.update(range(body[0].lineno, body[-1].end_lineno + 1))
    return found - guarded


def _made_of_literals(tree: ast.AST) -> Set[str]:
    """Return the variables of a source that get values from its literals only."""
    bound: Dict[str, List[Optional[ast.AST]]] = {}
    for node in _stored(tree):
        bound.setdefault(node, []).append(None)
    for target, value in _assigned(tree):
        for name in _stored(target):
            bound[name].remove(None)
            bound[name].append(value)
    known: Set[str] = set()
    before = -1
    while before < len(known):
        before = len(known)
        known.update(
            name
            for name, values in bound.items()
            if all(value is not None and _is_made_of(value, known) for value in values)
        )
    return known


def _stored(tree: ast.AST) -> Iterator[str]:
    """Yield the name of a variable for each statement that binds, deletes or extends it."""
    import ast  # noqa: PLC0415

    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr in _CHANGES:
            yield getattr(node.value, "id", "")


def _assigned(tree: ast.AST) -> Iterator[Tuple[ast.AST, Optional[ast.AST]]]:
    """Yield the targets of assignments and loops, each with its value or iterable."""
    import ast  # noqa: PLC0415

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign):
            yield node.target, node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield node.target, node.iter


def _is_made_of(value: ast.AST, known: Set[str]) -> bool:
    import ast  # noqa: PLC0415

    names = (each.id for each in ast.walk(value) if isinstance(each, ast.Name))
    return all(name in known or name in _OWN_NAMES for name in names)


def _other_metadata(installed: InstalledFiles, payload: str) -> Iterator[ModuleProblem]:
    """Yield metadata in the payload that differs from the installed subject's, under its name.

    ``importlib.metadata`` would find it, and with it entry points that the wheel may lack.
    """
    for one in distributions(installed.name, below=real_folder(payload)):
        if _version_and_points(one) != _version_and_points(installed.dist):
            shown = below_payload(one.info)
            what = (
                f"the payload has metadata of {installed.name} ({shown}) with another version or"
                f" other entry points than {installed.name} {installed.version} installed"
            )
            fix = f"leave it out of the payload: {os.path.basename(one.info)} comes from a build"
            yield ModuleProblem(installed.name, one.info, what, fix)


def _version_and_points(one: Distribution) -> Tuple[str, List[str]]:
    lines = (line.replace(" ", "") for line in one.text("entry_points.txt").splitlines())
    return one.version, sorted(filter(None, lines))

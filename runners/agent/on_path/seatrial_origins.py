"""Finds the files that a distribution installed, and checks that modules came from them.

PYTEST_DONT_REWRITE: loaded before pytest could rewrite it, from a place that no payload reaches.
The agent also runs this file's text by itself: before the first job, it lists what is installed.
"""
# ruff: noqa: INP001, PTH116, PTH118, PTH119, PTH120, PTH123 - no package; plain text is quick

from __future__ import annotations

import csv
import functools
import importlib.util
import json
import os
import sys
import time
import types
from typing import (
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from seatrial_distributions import NotInstalledError, distribution, distributions

SUFFIXES = (".py", ".so", ".pyd", ".pyc")
BESIDE = frozenset(
    ("tests", "test", "testing", "docs", "doc", "examples", "benchmarks", "scripts", "conftest")
)
"""Names that wheels install by mistake; they count only if a distribution has no others."""
_STARTED = time.time()
sha256 = next(
    importlib.import_module(name).sha256
    for name in ("_sha2", "_sha256", "hashlib")
    if importlib.util.find_spec(name) is not None
)
"""Python's own implementation: ``hashlib`` loads all of OpenSSL, 3 ms in each process."""
GIVEN = {name: value for name, value in os.environ.items() if name.startswith("SEATRIAL_")}
"""The agent's variables, saved before code of the payload can change them."""
MODULES = sys.modules
"""Python's table of modules: an import uses it even if ``sys.modules`` is replaced."""
EXECUTED: Set[str] = set()
"""Files that Python's loaders and runpy executed in a process of pytest."""
IMPORTERS: Dict[str, Set[Tuple[str, int]]] = {}
"""Files and lines whose module level called ``import_module``, by the imported module's name."""
_DYNAMIC = ("import_module", "__import__")
_PLUGIN = (
    "a plug-in in the payload cannot be told from a module that the wheel lacks: install it as a"
    " distribution of its own, or leave it out"
)


class ModuleProblem(NamedTuple):
    """A module that did not come from the distribution that its name belongs to."""

    module: str
    file: str
    """The module's file; empty without one."""
    what: str
    fix: str


class InstalledFiles:
    """The files that a distribution installed, by its RECORD."""

    def __init__(self, name: str, *, roots: Iterable[str] = ()) -> None:
        """Read the distribution that the current path finds.

        Args:
            name: The distribution's.
            roots: The import names to look at; by default all that it installed.

        Raises:
            NotInstalledError: it is not installed.
        """
        dist = distribution(name)
        self.name = name
        self.dist = dist
        self.home = dist.home
        self.files, self.record = modules_of_record(dist.text("RECORD"))
        """Digests by path below `home`, as RECORD writes them; empty for files without one."""
        self.roots = frozenset(roots) or import_names(self.files)
        self._folders = frozenset(os.path.dirname(path) for path in self.files)
        self._good: Dict[str, object] = {}
        self.stand_ins: Set[str] = set()
        """Files of the payload that replace optional dependencies of the subject."""

    @property
    def version(self) -> str:
        """Version of the distribution."""
        return self.dist.version

    def of(self, loaded: Mapping[str, object]) -> Dict[str, object]:
        """Return the modules with names of this distribution.

        Modules are recognised by their exact types: reading the class of a lazy object that
        replaces a deprecated one would warn.

        Args:
            loaded: ``sys.modules``, or a part of it.
        """
        tops = {root.partition(".")[0] for root in self.roots}
        return {
            name: module
            for name, module in list(loaded.items())
            if module is not None and name.partition(".")[0] in tops and self.is_mine(name)
        }

    def problems(
        self, loaded: Mapping[str, object], *, payload: str = "", own: FrozenSet[str] = frozenset()
    ) -> List[ModuleProblem]:
        """Return the modules that did not come from this distribution.

        Args:
            loaded: ``sys.modules``, or a part of it.
            payload: The payload's folder: files in it are never the distribution's.
            own: Files of tests and conftests: they may add modules, but replace none.
        """
        found = []
        for name, module in self.of(loaded).items():
            if self._good.get(name) is module:
                continue
            problem = self._problem(name, module, loaded, payload, own)
            if problem is not None:
                found.append(problem)
            else:
                self._good[name] = module
        return found

    def path_of(self, file: str) -> Optional[str]:
        """Return a file's path below `home` if the distribution installed it."""
        for base, each in ((self.home, file), (real_folder(self.home), real_file(file))):
            prefix = base.rstrip(os.sep) + os.sep
            if each.startswith(prefix) and each[len(prefix) :] in self.files:
                return each[len(prefix) :]
        return None

    def is_mine(self, name: str) -> bool:
        """Return whether a module of this name would be one of the distribution."""
        while name not in self.roots:
            name, dot, _ = name.rpartition(".")
            if not dot:
                return False
        return True

    def _problem(
        self,
        name: str,
        module: object,
        loaded: Mapping[str, object],
        payload: str,
        own: FrozenSet[str],
    ) -> Optional[ModuleProblem]:
        files = files_of(module)
        for file in files:
            if self.path_of(file) is None:
                return self._stray(name, module, file, loaded, payload, own)
        strange = _not_of_its_file(name, module, payload)
        if files and strange:
            what = f"{name} names {files[0]} as its file, but its functions come from {strange}"
            return ModuleProblem(name, files[0], what, "leave sys.modules to Python's import")
        if files or self._is_namespace(module):
            return None
        if self._made_here(module, name, loaded, payload):
            return None
        builtin = contents(module).get("__name__") in sys.builtin_module_names
        if builtin and self._lent(name, module, loaded):
            return None
        what = f"{name} in sys.modules comes from no file"
        fix = "undo what replaces it after each test, as monkeypatch.setitem(sys.modules, ...) does"
        return ModuleProblem(name, "", what, fix)

    def _stray(
        self,
        name: str,
        module: object,
        file: str,
        loaded: Mapping[str, object],
        payload: str,
        own: FrozenSet[str],
    ) -> Optional[ModuleProblem]:
        inside = bool(payload) and is_below(real_file(file), real_folder(payload))
        if not inside and name not in self.roots and self._lent(name, module, loaded):
            return None
        if not self.has(name) and (file in own if inside else self._is_plugin(name, file)):
            return None
        shown = os.path.relpath(file, payload) if inside else file
        what = (
            f"{name} was loaded from {shown}, and {self.name} {self.version} installed no such file"
        )
        fix = f"let {name} be imported from {self.home} alone"
        if inside and shown in self.files:
            fix = leave_out(shown)
        elif inside:
            fix = (
                f"rename or move {shown}, or keep its folder off sys.path"
                " (conftest's sys.path.insert; --import-mode=importlib adds no folders)"
            )
            fix = _PLUGIN if self._is_open(name) else fix
        return ModuleProblem(name, file, what, fix)

    def _is_open(self, name: str) -> bool:
        """Return whether other distributions may add modules to the package of this module."""
        stem = os.path.join(self.home, *name.split(".")[:-1])
        return b"extend_path" in source_of(os.path.join(stem, "__init__.py"))

    def _is_plugin(self, name: str, file: str) -> bool:
        """Return whether another distribution installed the module before this process began."""
        return self._is_open(name) and any(
            file == os.path.join(one.home, path)
            and max(os.stat(each).st_ctime for each in (file, os.path.join(one.home, record)))
            < _STARTED
            for one in distributions()
            for files, record in [modules_of_record(one.text("RECORD"))]
            for path in (files if record else ())
        )

    def has(self, name: str) -> bool:
        """Return whether the distribution installed a module of this name."""
        stem = name.replace(".", os.sep)
        return any(
            path.startswith((stem + ".", stem + os.sep + "__init__.")) for path in self.files
        )

    def _is_namespace(self, module: object) -> bool:
        """Return whether a module is a namespace package in a folder of the distribution."""
        if type(module) is not types.ModuleType:
            return False
        places = [str(place) for place in contents(module).get("__path__") or ()]  # type: ignore[attr-defined]
        return bool(places) and all(self._is_folder(place) for place in places)

    def _is_folder(self, place: str) -> bool:
        path = os.path.relpath(real_folder(place), real_folder(self.home))
        return any(f == path or f.startswith(path + os.sep) for f in self._folders)

    def _made_here(
        self, module: object, name: str, loaded: Mapping[str, object], payload: str
    ) -> bool:
        """Return whether the distribution created a module without a file, like six.moves."""
        if self._is_native(module, name, loaded):
            return True
        kind = type(module)
        plain = kind is types.ModuleType
        makers = _makers(contents(module).values() if plain else kind.__mro__)
        strange = any(
            is_below(real_file(maker), real_folder(payload)) for maker in makers if payload
        )
        return not strange and any(self.path_of(maker) is not None for maker in makers)

    def _is_native(self, module: object, name: str, loaded: Mapping[str, object]) -> bool:
        """Return whether a binary module of the distribution created it as its submodule."""
        above, _, last = name.rpartition(".")
        parent = loaded.get(above)
        if parent is None or contents(parent).get(last, module) is not module:
            return False
        files = files_of(parent)
        if not files:
            return self._is_native(parent, above, loaded)
        binary = not any(file.endswith((".py", ".pyc")) for file in files)
        return binary and all(self.path_of(file) is not None for file in files)

    def _lent(self, name: str, module: object, loaded: Mapping[str, object]) -> bool:
        """Return whether the module is another distribution's, under a name without a file here."""
        told = contents(module)
        own_names = (str(getattr(told.get("__spec__"), "name", "")), str(told.get("__name__", "")))
        return not self.has(name) and any(
            own not in ("", name) and not self.is_mine(own) and loaded.get(own, module) is module
            for own in own_names
        )


def leave_out(source: str) -> str:
    """Return advice to run the payload's tests against the installed subject.

    Args:
        source: A file or folder of the subject's source, relative to the payload.
    """
    top = source.partition(os.sep)[0]
    return (
        f'leave that source out of the payload, with exclude = ["{top}"] in payload.toml;'
        f' tests within it run as they were installed, with pytest = ["--pyargs", "{top}"]'
    )


def source_of(file: str) -> bytes:
    """Return the text of a module's file; empty if it is not a source, or unreadable."""
    if not file.endswith(".py"):
        return b""
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def names_of(node: object, package: str) -> List[str]:
    """Return the names that an import statement in a package imports; empty for other nodes."""
    if type(node).__name__ == "Import":
        return [one.name for one in node.names]  # type: ignore[attr-defined]
    if type(node).__name__ != "ImportFrom":
        return []
    level, module = node.level, node.module  # type: ignore[attr-defined]
    above = package.split(".")[: -level + 1 or None] if level else []
    base = ".".join([*above, *filter(None, [module])])
    return [f"{base}.{one.name}" for one in node.names]  # type: ignore[attr-defined]


def importers(tree: object) -> Set[str]:
    """Return the names by which a source calls ``import_module`` and ``__import__``."""
    import ast  # noqa: PLC0415 - few processes need it

    nodes = ast.walk(tree)  # type: ignore[arg-type]
    aliases = [each for node in nodes for each in getattr(node, "names", ())]
    other = (each.asname for each in aliases if getattr(each, "name", "") in _DYNAMIC)
    return {*_DYNAMIC}.union(filter(None, other))


def called(call: object) -> str:
    """Return the last part of the name of the function that a call expression calls."""
    function = call.func  # type: ignore[attr-defined]
    return str(getattr(function, "attr", getattr(function, "id", "")))


def below_payload(file: str) -> str:
    """Return a file's path relative to the payload; any other path unchanged."""
    given = GIVEN.get("SEATRIAL_PAYLOAD", "")
    payload = real_folder(given) if given else ""
    real = real_file(file)
    return os.path.relpath(real, payload) if payload and is_below(real, payload) else file


def import_names(files: Iterable[str]) -> FrozenSet[str]:
    """Return the names that are imported: packages, modules, and parts of namespaces."""
    paths = [path.split("/") for path in files]
    packages = {tuple(parts[:-1]) for parts in paths if parts[-1].startswith("__init__.")}
    names = {_root(parts, packages) for parts in paths} - {""}
    own = {name for name in names if name not in BESIDE}
    return frozenset(own or names)


def _root(parts: List[str], packages: "set[Tuple[str, ...]]") -> str:
    for depth in range(1, len(parts)):
        if tuple(parts[:depth]) in packages:
            return _dotted(parts[:depth])
    return _dotted([*parts[:-1], parts[-1].split(".")[0]])


def _dotted(parts: List[str]) -> str:
    good = all(part.isidentifier() and not part.startswith("__editable__") for part in parts)
    return ".".join(parts) if good else ""


def modules_of_record(text: str) -> Tuple[Dict[str, str], str]:
    """Return the modules with their digests, and the path of RECORD itself."""
    files, record = {}, ""
    rows = (row for row in text.splitlines() if ".py" in row or ".so" in row or "/RECORD" in row)
    for row in csv.reader(rows):
        path = row[0] if row else ""
        if path.endswith(".dist-info/RECORD"):
            record = path
        elif path.endswith(SUFFIXES) and "__pycache__" not in path:
            first = path.partition("/")[0]
            if not path.startswith(("..", "/")) and not first.endswith((".dist-info", ".data")):
                files[path] = row[1] if len(row) > 1 else ""
    return files, record


def files_of(module: object) -> List[str]:
    """Return every file that a module declares as its origin; normally all are one file."""
    told = contents(module)
    spec, loader = told.get("__spec__"), told.get("__loader__")
    origin = getattr(spec, "origin", None) if getattr(spec, "has_location", False) else None
    found = (told.get("__file__"), origin, getattr(loader, "path", None))
    return list(dict.fromkeys(file for file in found if isinstance(file, str) and file))


def contents(module: object) -> Mapping[str, object]:
    """Return a module's namespace without loading a lazy module."""
    try:
        found = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, (dict, types.MappingProxyType)) else {}


def _not_of_its_file(name: str, module: object, payload: str) -> str:
    """Return the origin of a module's functions if all come from executed text or the payload.

    Functions that wrap others are ignored: libraries make such ones from text. All are ignored if
    the file makes functions from text itself and defines none of their names.
    """
    own: List[str] = []
    found = ""
    for value in list(contents(module).values()):
        if type(value) is not types.FunctionType or value.__module__ != name:
            continue
        file = value.__code__.co_filename
        if not (
            file.startswith("<") or (payload and is_below(real_file(file), real_folder(payload)))
        ):
            return ""
        if not hasattr(value, "__wrapped__"):
            found = file
            own.append(value.__code__.co_name)
    return "" if found.startswith("<") and _makes_from_text(module, own) else found


def _makes_from_text(module: object, functions: Iterable[str]) -> bool:
    """Return whether a module's file executes text and defines none of these functions."""
    try:
        with open(str(contents(module).get("__file__")), "rb") as source:
            parts = [compile(source.read(), "<source>", "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return False
    for code in parts:
        parts += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    used = {name for code in parts for name in code.co_names}
    defined = {code.co_name for code in parts}
    return not used.isdisjoint(("exec", "eval", "FunctionType")) and defined.isdisjoint(functions)


def code_files(value: object) -> FrozenSet[str]:
    """Return the files of the code that runs when a value is called; empty without code.

    Values are recognised by their exact types: reading an attribute would load a lazy value.
    """
    kind = type(value)
    if kind is functools.partial:
        value, kind = value.func, type(value.func)  # type: ignore[attr-defined]
    if kind in _WRAPPERS:
        value = value.fget if kind is property else value.__func__  # type: ignore[attr-defined]
        kind = type(value)
    if kind is types.FunctionType:
        return frozenset((value.__code__.co_filename,))  # type: ignore[attr-defined]
    if type in kind.__mro__:
        return _makers((value,))
    if kind not in _CALLED:
        bodies = (vars(each).get("__call__") for each in kind.__mro__)
        _CALLED[kind] = _makers(each for each in bodies if each is not None)
    return _CALLED[kind]


_WRAPPERS = (types.MethodType, staticmethod, classmethod, property)
_CALLED: Dict[type, FrozenSet[str]] = {}
"""File of the `__call__` method, by class of the object."""


def _makers(values: Iterable[object]) -> FrozenSet[str]:
    """Return the files in which functions, and the methods of classes, are defined."""
    found = set()
    for value in values:
        parts = contents(value).values() if isinstance(value, type) else (value,)
        codes = (each.__code__ for each in parts if type(each) is types.FunctionType)
        found.update(code.co_filename for code in codes)
    return frozenset(found)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is the folder itself, or in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


_REAL: Dict[str, str] = {}


def real_folder(folder: str) -> str:
    """Return a folder's path without links."""
    if folder not in _REAL:
        _REAL[folder] = os.path.realpath(folder)
    return _REAL[folder]


def real_file(file: str) -> str:
    """Return a file's path without links to folders."""
    return os.path.join(real_folder(os.path.dirname(file)), os.path.basename(file))


class RequiredDistributions(NamedTuple):
    """The distributions that a process of pytest must have loaded."""

    tools: Tuple[InstalledFiles, ...]
    """pytest and its dependencies."""
    subject: Optional[InstalledFiles]
    """The installed subject, if any."""

    def problems(self, own: FrozenSet[str] = frozenset()) -> List[Tuple[str, ModuleProblem]]:
        """Return each module with a wrong origin, and the reason of the outcome."""
        from seatrial_shipped import copies, taken_from_payload  # noqa: PLC0415 - it imports this

        payload = GIVEN.get("SEATRIAL_PAYLOAD", "")
        told = [("wrong_pytest", each) for each in self.tools]
        told += [("wrong_subject", self.subject)] if self.subject else []
        found = [
            (reason, problem)
            for reason, installed in told
            for problem in installed.problems(MODULES, payload=payload, own=own)
        ]
        if self.subject is not None and payload:
            used = taken_from_payload(self.subject, MODULES, payload, own)
            found += [("wrong_subject", problem) for problem in used]
        elif payload:
            tops = frozenset(GIVEN.get("SEATRIAL_SUBJECT_TOPS", "").split())
            found += [("wrong_subject", each) for each in copies(MODULES, payload, tops, own)]
        return found

    def elsewhere(self) -> Optional[Tuple[str, InstalledFiles]]:
        """Return a distribution outside of the recorded folder, with the reason; or None."""
        homes = json.loads(GIVEN.get("SEATRIAL_HOMES") or "{}")
        told = [("wrong_pytest", each) for each in self.tools]
        told += [("wrong_subject", self.subject)] if self.subject else []
        for reason, one in told:
            if one.name in homes and real_folder(one.home) != real_folder(homes[one.name]):
                return reason, one
        return None


_REQUIRED: List[RequiredDistributions] = []


def required_distributions() -> RequiredDistributions:
    """Read the installed distributions once, before code of the payload can be imported."""
    if not _REQUIRED:
        subject = GIVEN.get("SEATRIAL_SUBJECT", "")
        _REQUIRED.append(
            RequiredDistributions(tuple(_tools()), InstalledFiles(subject) if subject else None)
        )
    return _REQUIRED[0]


def _tools() -> Iterator[InstalledFiles]:
    for name, roots in (("pytest", ("pytest", "_pytest")), ("pluggy", ("pluggy",))):
        try:
            yield InstalledFiles(name, roots=roots)
        except NotInstalledError:  # noqa: PERF203 - laid there without its metadata
            continue

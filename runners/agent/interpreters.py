"""Queries a Python interpreter for its version and packages.

While nothing of an interpreter that was described before changes, it is not started again. The file
beside the agent has what it answered, and a mark of its program, of every folder that it imports
from, and of the metadata of each installed package. Where jobs run as the agent's own user, they
could write the file, as they could write the interpreter's packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import bounded_process
from .evidence_text import JsonValue
from .layout import mark_of, on_path

_TIMEOUT_S = 60.0
_OUTPUT_CHARS = 500
ANSWER = "SEATRIAL-ANSWER:"
LOGIN_HOME = "SEATRIAL_LOGIN_HOME"
"""Variable with the home folder of the login user, where sudo has changed HOME."""

Run = Callable[[Sequence[str]], bounded_process.ProgramOutput]

_ORIGINS, _DISTRIBUTIONS = "seatrial_origins", "seatrial_distributions"


def packages_program() -> str:
    """Return a program that lists the installed packages, by ``packages()``."""
    return _source(_DISTRIBUTIONS)


def origins_program() -> str:
    """Return a program that lists the files of a distribution, by ``InstalledFiles(name)``."""
    own = f"^from {_DISTRIBUTIONS} import .*$"
    return re.sub(own, lambda _: packages_program(), _source(_ORIGINS), flags=re.MULTILINE)


def requirements_program() -> str:
    """Return `origins_program` with ``undeclared(name)``."""
    own = r"^from seatrial_\w+ import (?:\([^)]*\)|.*)$"
    more = re.sub(own, "", _source("seatrial_undeclared"), flags=re.MULTILINE)
    return f"{origins_program()}\n{more}"


def _source(module: str) -> str:
    return (on_path() / f"{module}.py").read_text(encoding="utf-8")


_SELF = f"""
import hashlib, importlib.util, json, os, platform, sys
have = packages()
watched = [os.path.join(sys.prefix, "pyvenv.cfg"), *filter(None, sys.path)]
for folder in filter(os.path.isdir, sys.path):
    watched += [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pth")]
for one in distributions():
    watched += [os.path.join(one.info, name) for name in ("", "METADATA", "PKG-INFO", "RECORD")]
records = sorted(
    (os.path.basename(one.info), hashlib.sha256(one.text("RECORD").encode()).hexdigest())
    for one in distributions()
)
names = ("site-packages", "dist-packages")
print('{ANSWER}' + json.dumps({{
    "path": os.path.abspath(sys.executable),
    "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "prefix": sys.prefix,
    "site_paths": [p for p in sys.path if os.path.basename(p) in names and os.path.isdir(p)],
    "packages": have,
    "records": hashlib.sha256(repr(records).encode()).hexdigest(),
    "pip": have.get("pip"),
    "has_venv": importlib.util.find_spec("venv") is not None,
    "error": None,
    "watched": sorted({{*map(os.path.abspath, watched)}}),
}}))
"""


_MAKE = f"""
import json, os, sys
names = ("site-packages", "dist-packages")
print('{ANSWER}' + json.dumps({{
    "site_paths": [p for p in sys.path if os.path.basename(p) in names and os.path.isdir(p)],
    "has_pip": any(finder.find_spec("pip", None) for finder in sys.meta_path),
}}), flush=True)
import venv
venv.EnvBuilder(symlinks=True).create(sys.argv[1])
"""
"""Script that describes the interpreter, then creates a virtual environment without pip."""


class VirtualEnvironment(NamedTuple):
    """A virtual environment, and the packages of the interpreter that made it."""

    site_paths: Tuple[str, ...]
    """Its folders with installed packages."""
    has_pip: bool


class VenvError(Exception):
    """A virtual environment cannot be created; the text gives the reason."""


def make_venv(python: str, folder: Path, run: Run) -> VirtualEnvironment:
    """Create a virtual environment without pip.

    Args:
        python: The interpreter's path, or its name on PATH.
        folder: Its folder, which must not exist yet.
        run: Runs a program with arguments.

    Raises:
        VenvError: the interpreter cannot be used, or cannot create one.
    """
    path = shutil.which(at_home(python))
    if path is None:
        raise VenvError(f"{python} is no usable Python: not found, or not executable")
    answer = run((path, "-E", "-s", "-c", _MAKE, str(folder)))
    found = extract(answer.text)
    said = (
        "it did not answer in time"
        if answer.timed_out
        else without_answer(answer.text)[-_OUTPUT_CHARS:]
    )
    if found is None:
        raise VenvError(f"{python} is no usable Python: {said or f'exit code {answer.exit_code}'}")
    if not answer.ok:
        raise VenvError(f"{python} cannot make a venv: {said or f'exit code {answer.exit_code}'}")
    paths = found["site_paths"]
    assert isinstance(paths, list)
    return VirtualEnvironment(tuple(map(str, paths)), has_pip=found["has_pip"] is True)


_BUNDLED = """
import glob, os, sysconfig
try:
    import ensurepip
    places = [os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")]
except ImportError:
    places = []
places.append(sysconfig.get_config_var("WHEEL_PKG_DIR") or "")
wheels = [glob.glob(os.path.join(place, "pip-*.whl")) for place in places if place]
found = sorted(sum(wheels, []))
"""


def bundled_pip(path: str) -> Optional[str]:
    """Return the path of the pip wheel that came with an interpreter; None without one."""
    script = answering(_BUNDLED, '{"found": found}')
    answer = bounded_process.run(
        (path, "-E", "-s", "-c", script), timeout_s=_TIMEOUT_S, env=quiet_environment()
    )
    found = extract(answer.text) if answer.ok else None
    wheels = found["found"] if found is not None else None
    return str(wheels[0]) if isinstance(wheels, list) and wheels else None


def ask(candidate: str) -> Tuple[Dict[str, JsonValue], Sequence[str]]:
    """Describe one interpreter; ``error`` has the reason if that is not possible.

    Returns:
        The description, and the files and folders that it depends on, beside the program.
    """
    path = shutil.which(at_home(candidate))
    if path is None:
        return _unusable(candidate, None, "not found, or not executable"), ()
    answer = bounded_process.run(
        (path, "-E", "-s", "-c", packages_program() + _SELF),
        timeout_s=_TIMEOUT_S,
        env=quiet_environment(),
    )
    found = extract(answer.text) if answer.ok else None
    if found is None:
        why = "it did not answer in time" if answer.timed_out else answer.text.strip()[-500:]
        return _unusable(candidate, path, why or f"exit code {answer.exit_code}"), ()
    told = dict(found)
    watched = told.pop("watched")
    assert isinstance(watched, list)
    return {"candidate": candidate, **told}, [str(path) for path in watched]


def at_home(candidate: str) -> str:
    """Resolve ``~``; with sudo it is still the home folder of the login user."""
    home = os.environ.get(LOGIN_HOME)
    if home and (candidate == "~" or candidate.startswith("~/")):
        return home + candidate[1:]
    return str(Path(candidate).expanduser())


def extract(text: str) -> Optional[Mapping[str, JsonValue]]:
    """Return the JSON answer in a program's output, or None; other text is ignored."""
    for line in reversed(text.splitlines()):
        if line.startswith(ANSWER):
            try:
                value = json.loads(line[len(ANSWER) :])
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None


def without_answer(text: str) -> str:
    """Return a program's output without its line with the answer."""
    lines = (line for line in text.splitlines() if not line.startswith(ANSWER))
    return "\n".join(lines).strip()


def answering(script: str, expression: str) -> str:
    """Return a script that ends by printing an expression as its answer.

    Output that a package prints at the interpreter's exit comes after that line.
    """
    return f"{script}\nimport json\nprint('{ANSWER}' + json.dumps({expression}), flush=True)\n"


def quiet_environment() -> Dict[str, str]:
    """Return the agent's environment without the variables that change how Python starts."""
    drop = ("PYTHON", "PYTEST_", "VIRTUAL_ENV", "PIP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(drop)}


def _unusable(candidate: str, path: Optional[str], error: str) -> Dict[str, JsonValue]:
    return {
        "candidate": candidate,
        "path": path,
        "version": None,
        "implementation": None,
        "prefix": None,
        "site_paths": [],
        "packages": {},
        "records": None,
        "pip": None,
        "has_venv": False,
        "error": error,
    }


_FILE = Path(__file__).resolve().parent.parent / "interpreters.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SETTLED_NS = 2_000_000_000
"""A file that is younger than this when it is read may change again without a new time stamp."""
_MOST = 32


def describe(candidate: str, file: Path = _FILE) -> Dict[str, JsonValue]:
    """Describe one interpreter, as `ask` does; start it only if it may have changed.

    Args:
        candidate: Its path, or its name on PATH.
        file: Where descriptions are kept.

    Returns:
        The description; `error` has the reason if it cannot be described.
    """
    path = shutil.which(at_home(candidate))
    known = _read(file)
    kept = known.get(path or "")
    if kept is not None and kept["marks"] == _marks(kept["marks"]):
        return {"candidate": candidate, **kept["found"]}
    began_ns = time.time_ns()
    found, watched = ask(candidate)
    if path is None or found["error"] is not None:
        return found
    marks = _marks([path, *watched])
    changed_ns = max(max(mark[2:]) for mark in marks.values() if mark is not None)
    if changed_ns < began_ns - _SETTLED_NS:
        told = {name: value for name, value in found.items() if name != "candidate"}
        newest = [*known.items(), (path, {"found": told, "marks": marks})][-_MOST:]
        _write(file, dict(newest))
    return found


def _marks(paths: Any) -> Dict[str, Any]:  # noqa: ANN401 - names, or a table by name
    return {path: None if (mark := mark_of(path)) is None else list(mark) for path in paths}


def _boot() -> str:
    """Return the id of the machine's current boot; empty if the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _read(file: Path) -> Dict[str, Any]:
    """Return the descriptions stored since the boot, by path; empty for a damaged file."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if not kept["boot"] or kept["boot"] != _boot():
            return {}
        return {
            path: {"found": dict(one["found"]), "marks": dict(one["marks"])}
            for path, one in kept["known"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(file: Path, known: Dict[str, Any]) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"boot": _boot(), "known": known}), encoding="utf-8")
        temporary.rename(file)
    except OSError:  # a full disk: the next probe starts the interpreter again
        with contextlib.suppress(OSError):
            temporary.unlink()

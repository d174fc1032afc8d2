"""Starts pytest from the environment: a payload's own ``pytest/`` or ``conftest`` comes too late.

``python seatrial_start.py pytest ARGUMENTS`` does what ``python -m pytest ARGUMENTS`` does, and
``python seatrial_start.py worker -u -c CODE`` what ``python -u -c CODE`` does for pytest-xdist.
Only this file's folder and the environment are on the path until pytest and the recorder are
loaded. The agent has moved PYTHONPATH to SEATRIAL_PYTHONPATH; it is restored then, with the
payload's folder in front of it, as ``-m`` does.
"""
# ruff: noqa: INP001, PTH100, PTH109, PTH123 - no package; pathlib is not needed to start

from __future__ import annotations

import json
import os
import sys
from typing import List, Optional

REFUSED = 76
"""Exit code if pytest is not started, or if the tested package is not the subject."""

_TOOLS = (
    "pytest",
    "_pytest",
    "pluggy",
    "seatrial_pytest",
    "seatrial_code",
    "seatrial_origins",
    "seatrial_module_snapshots",
    "seatrial_shipped",
    "seatrial_distributions",
)


def main(how: str, arguments: List[str]) -> None:
    """Load the protected modules, restore the path, and run pytest or the worker."""
    before, safe = _payload_path(), list(sys.path)
    outside = [entry for entry in before[1:] if not _is_the_payloads(entry)]
    sys.path[1:1] = outside
    import seatrial_origins  # noqa: PLC0415 - not where multiprocessing loads this file again

    try:
        import pytest  # noqa: F401, PLC0415 - the environment's, for all that comes after
    except ImportError as error:
        sys.exit(f"pytest cannot be imported from the environment: {error}")
    import seatrial_code  # noqa: PLC0415
    import seatrial_pytest  # noqa: F401, PLC0415
    import seatrial_shipped  # noqa: F401, PLC0415

    elsewhere = seatrial_origins.required_distributions().elsewhere()
    if elsewhere is not None:
        reason, one = elsewhere
        text = f"another {one.name} comes before the installed one on the path: {one.home}"
        _refuse(one.home, text, "keep its folder off PYTHONPATH", reason=reason)
    if sys.flags.optimize:
        text = "Python runs optimized (PYTHONOPTIMIZE), so assertions are left out"
        _refuse("", text, "run the suite without it; a test can start an optimized Python itself")
    if sys.pycache_prefix:
        text = "Python takes byte code from elsewhere (PYTHONPYCACHEPREFIX)"
        _refuse("", text, "run the suite without it: what it holds may differ from the sources")
    shadow = _shadow(before, safe)
    if shadow is not None:
        text = f"{shadow} has the name of a tool that runs the tests, and would replace it"
        _refuse(shadow, text, "rename it, or keep its folder off PYTHONPATH")
    seatrial_code.watch()
    sys.path[:] = list(dict.fromkeys([*before, *safe[1:]]))
    _go_on(how, arguments)


def _go_on(how: str, arguments: List[str]) -> None:
    if how == "worker":
        sys.argv = ["-c"]
        exec(arguments[-1], {"__name__": "__main__"})  # execnet's own first line
        return
    import runpy  # noqa: PLC0415

    sys.argv = ["pytest", *arguments]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


def _payload_path() -> List[str]:
    """Restore PYTHONPATH and return the entries that precede the environment's on the path."""
    given = os.environ.pop("SEATRIAL_PYTHONPATH", "")
    if given:
        os.environ["PYTHONPATH"] = given
    entries = [os.path.abspath(entry) for entry in given.split(os.pathsep)] if given else []
    return [os.getcwd(), *entries]


def _shadow(before: List[str], safe: List[str]) -> Optional[str]:
    """Return the payload's file that would shadow a tool's module, or None."""
    from importlib.machinery import PathFinder  # noqa: PLC0415

    for entry in before:
        if entry in safe or not _is_the_payloads(entry):
            continue
        for name in _TOOLS:
            spec = PathFinder.find_spec(name, [entry])
            if spec is not None and spec.origin is not None:
                return os.path.relpath(spec.origin, os.getcwd())
    return None


def _is_the_payloads(entry: str) -> bool:
    """Return whether a folder is in the payload; other entries are the environment's."""
    root = os.path.realpath(os.environ.get("SEATRIAL_PAYLOAD") or os.getcwd())
    return (os.path.realpath(entry) + os.sep).startswith(root + os.sep)


def _refuse(file: str, text: str, fix: str, *, reason: str = "wrong_pytest") -> None:
    found = {"reason": reason, "module": "", "file": file, "what": text, "fix": fix}
    line = {"record": "origins", "when": "start", "worker": "", "problems": [found]}
    path = os.environ.get("SEATRIAL_RECORDS")
    if path:
        with open(path, "a", encoding="ascii") as stream:
            stream.write(f"\n{json.dumps(line)}\n")
    sys.stderr.write(f"\nseatrial: {text}. {fix[0].upper()}{fix[1:]}.\n")
    sys.exit(REFUSED)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

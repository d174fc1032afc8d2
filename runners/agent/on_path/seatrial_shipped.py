"""Finds modules that the payload ships, and that a process loaded from another copy of them.

Where no wheel is under validation, the payload itself is the subject: an earlier release in the
interpreter, or an editable installation of another folder, must not be tested in its place.
PYTEST_DONT_REWRITE: loaded before anything of the payload (``seatrial_start``).
"""
# ruff: noqa: INP001, PTH113, PTH118, PTH120, PTH206 - not a package; plain text is quick

from __future__ import annotations

import os
import re
from typing import FrozenSet, Iterator, Mapping

from seatrial_origins import BESIDE, ModuleProblem, files_of, is_below, real_file, source_of

_FOLDERS = ("", "src", "lib", "python")
"""Folders of the payload that have its packages, as agent/payload_copy.py has them."""
_SITES = ("site-packages", "dist-packages")
_STANDARD = os.path.dirname(os.path.realpath(os.__file__))
_EXCLUDED = BESIDE | {"__main__", "__mp_main__", "setup", "sitecustomize", "usercustomize"}
_BUILT = frozenset(("__about__", "_version", "version"))
"""Modules that a build writes again, with the version."""
_VERSION = re.compile(rb"^__version__\s*=.*$", re.MULTILINE)
_OWN = os.path.dirname(os.path.realpath(__file__))


def copies(
    loaded: Mapping[str, object], payload: str, tops: FrozenSet[str]
) -> Iterator[ModuleProblem]:
    """Yield the modules from another copy, where its source differs from the shipped one.

    Args:
        loaded: ``sys.modules``, or a part of it.
        payload: The payload's folder.
        tops: Names that the payload may ship, without what follows a dot; ``*`` for any.
    """
    tops = tops - _EXCLUDED
    for name, module in list(loaded.items()) if tops else ():
        top = name.partition(".")[0]
        if (top not in tops and "*" not in tops) or top in _EXCLUDED:
            continue
        if name.rpartition(".")[2] in _BUILT:
            continue
        for file in files_of(module)[:1]:
            shipped = "" if _is_other(file, payload) else _shipped(name, payload)
            if shipped and _text(os.path.join(payload, shipped)) != _text(file):
                what = (
                    f"{name} was loaded from {file}, and the payload, which is the subject, has"
                    f" another {shipped}"
                )
                fix = (
                    "take that copy out of the interpreter and of [setup], or put the payload's"
                    " folder before it on the path (pytest's pythonpath, PYTHONPATH in"
                    " payload.toml's env)"
                )
                yield ModuleProblem(name, file, what, fix)


def _is_other(file: str, payload: str) -> bool:
    """Return whether a file is no copy: the payload's own, Python's, ours, or not a source."""
    real = real_file(file)
    is_standard = is_below(real, _STANDARD) and not set(_SITES) & set(real.split(os.sep))
    is_ours = is_standard or is_below(real, _OWN) or is_below(real, os.path.realpath(payload))
    return is_ours or not file.endswith(".py")


def _text(file: str) -> bytes:
    """Return a source without the version that a build may have written into it."""
    return _VERSION.sub(b"", source_of(file))


def _shipped(name: str, payload: str) -> str:
    """Return the path of a module in the payload; empty if it has none of the name."""
    stem = name.replace(".", os.sep)
    for folder in _FOLDERS:
        for end in (f"{os.sep}__init__.py", ".py"):
            path = os.path.join(folder, stem + end)
            if os.path.isfile(os.path.join(payload, path)):
                return path
    return ""

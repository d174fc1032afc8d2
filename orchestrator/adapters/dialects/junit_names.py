"""Node ids from what JUnit XML keeps of them.

pytest writes ``tests/test_x.py::TestY::test_z[p]`` as classname ``tests.test_x.TestY`` and name
``test_z[p]``: where the path ends and the classes begin is lost. It is found again like this:

1. the attribute ``file`` (family xunit1), if the classname begins with its dotted form: a test
   that is inherited stands under the file of its base class, which is not its own;
2. a doctest: its name begins with the module (``pkg.mod.f`` under ``src.pkg.mod``), or is the
   text file (``guide.rst`` under ``docs.guide.rst``);
3. the last part that looks like a test module, ``test_*`` or ``*_test``;
4. the parts before the first that begins with a capital, or all of them.

Other producers have no paths: their tests are ``classname::name``, and the second of the same
name gets ``#2``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b

from orchestrator.adapters.dialects.bounded_input import LINE_LIMIT, shortened

_PYTEST_SUITES = {"pytest", "pytest tests"}
_MODULE = re.compile(r"test_\w+|\w+_test")
_DOTTED = re.compile(r"\w[\w-]*(?:\.\w[\w-]*)+")
_TEXT_FILE = re.compile(r"[^/\[\]:]+\.(?:rst|txt|md)")
_DEEPEST_MODULE = 50
_ILLEGAL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Names:
    """Names the testcases of one document."""

    def __init__(self) -> None:
        self.is_pytest = False
        self._told: Counter[bytes] = Counter()

    def see_suite(self, name: str) -> None:
        """A suite's name tells who wrote the document."""
        self.is_pytest = self.is_pytest or name in _PYTEST_SUITES

    def nodeid(self, attributes: Mapping[str, str], suite: str) -> str:
        """The id of a testcase."""
        classname, name = _clean(attributes.get("classname")), _clean(attributes.get("name"))
        file = _clean(attributes.get("file")).replace("\\", "/").removeprefix("./")
        if self.is_pytest or _looks_like_python(classname, name, file):
            self.is_pytest = self.is_pytest or file.endswith(".py")
            return shortened(pytest_nodeid(classname, name, file), LINE_LIMIT)
        group = classname or _clean(suite)
        nodeid = shortened(f"{group}::{name}" if group else name or "?", LINE_LIMIT)
        return self._unique(nodeid)

    def _unique(self, nodeid: str) -> str:
        digest = blake2b(nodeid.encode("utf-8", "replace"), digest_size=12).digest()
        self._told[digest] += 1
        number = self._told[digest]
        return nodeid if number == 1 else f"{nodeid}#{number}"


def pytest_nodeid(classname: str, name: str, file: str = "") -> str:
    """Undo what pytest does to a node id."""
    if not classname:
        return _path(name) if _DOTTED.fullmatch(name) or not file else file or name
    module, classes = _split(classname, name, file)
    return "::".join([module, *classes, name])


def _split(classname: str, name: str, file: str) -> tuple[str, list[str]]:
    parts = classname.split(".")
    dotted = re.sub(r"\.py$", "", file).replace("/", ".")
    if file and (classname == dotted or classname.startswith(f"{dotted}.")):
        return file, classname[len(dotted) + 1 :].split(".") if classname != dotted else []
    if _TEXT_FILE.fullmatch(name) and f".{classname}".endswith(f".{name}"):
        return classname[: -len(name)].replace(".", "/") + name, []
    if _is_doctest(parts, name.split("[")[0].split(".")):
        return _path(classname), []
    last = _module_end(parts)
    return _path(".".join(parts[:last])), parts[last:]


def _is_doctest(module: list[str], name: list[str]) -> bool:
    """``pkg.mod.f`` in ``src.pkg.mod``: the name begins with the end of the module."""
    longest = min(len(module), len(name), _DEEPEST_MODULE)
    return len(name) > 1 and any(module[-n:] == name[:n] for n in range(1, longest + 1))


def _module_end(parts: list[str]) -> int:
    """How many parts belong to the module's path."""
    found = [n for n, part in enumerate(parts, 1) if _MODULE.fullmatch(part)]
    if found:
        return found[-1]
    capital = next((n for n, part in enumerate(parts) if part[:1].isupper()), len(parts))
    return max(capital, 1)


def _path(dotted: str) -> str:
    return dotted.replace(".", "/") + ".py"


def _looks_like_python(classname: str, name: str, file: str) -> bool:
    if file.endswith(".py"):
        return True
    parts = classname.split(".")
    if len(parts) < 2 or not _DOTTED.fullmatch(classname):
        return False
    return any(_MODULE.fullmatch(p) for p in parts[-3:]) and name.startswith("test")


def _clean(text: str | None) -> str:
    return _ILLEGAL.sub("\ufffd", (text or "")[: 2 * LINE_LIMIT])

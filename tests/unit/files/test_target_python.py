from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.tags import parse_tag

from orchestrator.adapters.files.target_python import applies, choose, is_met, platforms, tags
from orchestrator.application.ports.wheels import WheelsError
from orchestrator.domain.manifest import Environment, PythonChoice
from orchestrator.domain.reuse_inputs import Interpreter
from tests.unit.domain.builders import manifest


def python(path: str, **changes: Any) -> dict[str, Any]:
    values = {"candidate": path, "path": path, "version": "3.11.2", "implementation": "cpython"}
    packages = {"torch": "2.13.0+cpu", "typing_extensions": "4.1"}
    usable = {"has_venv": True, "error": None}
    return {**values, "packages": packages, "pip": "23", "records": "5e", **usable, **changes}


def probe(*interpreters: dict[str, Any]) -> dict[str, Any]:
    libc = ["glibc", "2.36"]
    return {"v": 1, "machine": "x86_64", "libc": libc, "interpreters": list(interpreters)}


PAYLOAD = manifest(
    python=PythonChoice(candidates=("/a", "/b"), requires=("torch>=2.7",)),
    env={"tpu": Environment(pip=("torch~=2.9.0",))},
)


def test_the_first_interpreter_that_has_what_is_required_is_chosen() -> None:
    without = python("/a", packages={})
    choice = choose(probe(without, python("/b"), python("/c")), PAYLOAD, "image")
    assert choice.interpreter is not None
    assert choice.interpreter.path == "/b"
    assert choice.interpreter.packages["typing-extensions"] == "4.1"
    assert choice.interpreter.libc == ("glibc", "2.36")
    assert choice.interpreter.records == "5e"


def test_what_the_environment_installs_is_not_required() -> None:
    choice = choose(probe(python("/a", packages={})), PAYLOAD, "tpu")
    assert choice.interpreter is not None


REFUSALS = [
    (python("/a", error="not found"), "/a: not found"),
    (python("/a", packages={}), "/a has no torch, and the payload requires torch>=2.7"),
    (python("/a", packages={"torch": "2.6"}), "/a has torch 2.6, and the payload requires"),
    (python("/a", packages={"torch": "weird"}), "/a has torch weird, and the payload requires"),
    (python("/a", has_venv=False), "/a cannot make virtual environments"),
    (python("/a", version="3.8.1"), "/a is Python 3.8.1; 3.9 is the oldest taken"),
    (python("/a", version=None), "/a is Python None"),
]


@pytest.mark.parametrize(("interpreter", "words"), REFUSALS)
def test_why_an_interpreter_is_not_chosen(interpreter: dict[str, Any], words: str) -> None:
    choice = choose(probe(interpreter), PAYLOAD, "image")
    assert choice.interpreter is None
    assert choice.reason.startswith(words)


@pytest.mark.parametrize("odd", [{}, {"interpreters": None}, {"interpreters": ["x"]}])
def test_a_probe_without_interpreters_names_the_candidates(odd: dict[str, Any]) -> None:
    assert choose(odd, PAYLOAD, "image").reason.startswith("the machine has none of /a, /b")


def test_an_environment_names_interpreters_of_its_own() -> None:
    payload = replace(PAYLOAD, env={"old": Environment(python=("python3.9",))})
    assert payload.candidates("old") == ("python3.9",)
    assert payload.candidates("image") == ("/a", "/b")
    assert choose({}, payload, "old").reason.startswith("the machine has none of python3.9")


def test_where_none_that_is_named_exists_no_other_python_replaces_it() -> None:
    missing = python("/a", error="not found, or not executable") | {"path": None}
    own = python("/own/python3")
    choice = choose(probe(missing, own), PAYLOAD, "image")
    assert choice.interpreter is None
    assert choice.reason == (
        "the machine has none of /a, /b, which payload.toml names: install one of them there, or"
        " name one that it has"
    )
    there = python("/b", packages={})
    choice = choose(probe(missing, there, own), PAYLOAD, "image")
    assert choice.interpreter is not None
    assert choice.interpreter.path == "/own/python3"
    unnamed = replace(PAYLOAD, python=PythonChoice(requires=("torch>=2.7",)))
    nothing = python("python3", error="not found, or not executable") | {"path": None}
    assert choose(probe(nothing, own), unnamed, "image").interpreter is not None


@pytest.mark.parametrize(
    ("requirement", "version", "met"),
    [
        ("torch>=2.13", "2.13.0+cpu", True), ("torch==2.13.0", "2.13.0+cpu", True),
        ("torch==2.13.0+cu128", "2.13.0+cpu", False), ("torch>=2.7", "2.8.0a0+gitabc", True),
        ("torch>=2.8", "2.8.0a0+gitabc", False), ("torch~=2.9.0", "2.13.0", False),
        ("torch", "1", True), ("torch", "", False), ("torch @ https://x/y.whl", "1", False),
    ],
)  # fmt: skip
def test_which_versions_meet_a_requirement(requirement: str, version: str, met: bool) -> None:
    assert is_met(Requirement(requirement), {"torch": version}) is met


def target(**changes: Any) -> Interpreter:
    values = {"path": "/p", "version": "3.9.18", "implementation": "cpython", "machine": "x86_64"}
    return Interpreter(**{**values, "libc": ("glibc", "2.28"), "packages": {}, **changes})


def test_markers_are_those_of_the_machine() -> None:
    old = Requirement('x; python_version < "3.10" and platform_machine == "x86_64"')
    assert applies(old, target())
    assert not applies(old, target(version="3.12.1"))
    assert not applies(old, target(machine="aarch64"))
    extra = Requirement('x; extra == "fast"')
    assert not applies(extra, target())
    assert applies(extra, target(), frozenset({"", "fast"}))


ACCEPTED = [
    ("py3-none-any", True), ("cp39-cp39-manylinux_2_28_x86_64", True),
    ("cp39-cp39-manylinux_2_29_x86_64", False), ("cp39-cp39-manylinux2014_x86_64", True),
    ("cp39-cp39-manylinux1_x86_64", True), ("cp37-abi3-manylinux_2_17_x86_64", True),
    ("cp310-abi3-manylinux_2_17_x86_64", False), ("cp39-cp39-linux_x86_64", True),
    ("py3-none-manylinux_2_17_x86_64", True), ("cp310-cp310-manylinux_2_17_x86_64", False),
    ("cp39-cp39-manylinux_2_17_aarch64", False), ("cp39-cp39-musllinux_1_1_x86_64", False),
    ("cp39-cp39-win_amd64", False),
]  # fmt: skip


@pytest.mark.parametrize(("tag", "accepted"), ACCEPTED)
def test_which_wheels_a_machine_takes(tag: str, accepted: bool) -> None:
    assert bool(set(tags(target())) & parse_tag(tag)) is accepted


def test_other_libraries_and_processors() -> None:
    arm = platforms(target(machine="aarch64"))
    assert "manylinux2014_aarch64" in arm
    assert "manylinux1_aarch64" not in arm
    assert "manylinux_2_5_aarch64" not in arm
    musl = platforms(target(libc=("musl", "1.2")))
    assert musl == [f"musllinux_1_{n}_x86_64" for n in (2, 1, 0)] + ["linux_x86_64"]


@pytest.mark.parametrize(
    "changes", [{"implementation": "pypy"}, {"libc": None}, {"libc": ("glibc", "x")}]
)
def test_wheels_are_found_for_cpython_on_linux_only(changes: dict[str, Any]) -> None:
    with pytest.raises(WheelsError):
        platforms(target(**changes))

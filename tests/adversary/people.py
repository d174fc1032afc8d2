"""Somebody excuses what he did himself, or for ever."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tests.adversary.lie import Lie
from tests.adversary.scene import DEFECT, GOOD, POLICY, Scene

RULE = "job/suite@here"
ALONE = {"approvals": {"on": []}}
"""A policy that asks for no approval."""


def _excused(approver: str, expires: str = "", **exception: Any) -> dict[str, Any]:
    """A policy that excuses the failing job; `approver` is its author under another spelling."""
    about: dict[str, Any] = {"id": "E-1", "rule": RULE, "reason": "It is known.", "author": "mario"}
    about["failing"] = {"t/test_double.py::test_double": 1}
    end = {"expires": expires or "{soon}"}
    return {**POLICY, "exceptions": [{**about, "approved_by": [approver], **end, **exception}]}


def _issue(**match: str) -> dict[str, Any]:
    about = {"id": "KI-1", "title": "known", "owner": "mario", "opened": "{today}"}
    return {**POLICY, "known_issues": [{**about, "expires": "{soon}", "match": match}]}


def _fails(scene: Scene) -> Sequence[str]:
    return [scene.run()]


def _waives(scene: Scene) -> Sequence[str]:
    """Waives the rule, and says yes to that himself."""
    run = scene.run()
    scene.check(run)
    scene.seatrial("gate", "waive", scene.product, RULE, "--reason", "known", "--days", "3")
    for words in (("--waiver", "W-0001"), ()):
        scene.seatrial("gate", "approve", scene.product, *words)
    return [run]


def _quarantines(scene: Scene) -> Sequence[str]:
    run = scene.run()
    words = ("--product", scene.product, "--reason", "flaky", "--owner", "mario", "--days", "3")
    scene.seatrial("quarantine", "add", "t/test_double.py::test_double", *words)
    return [run]


def _knows(scene: Scene) -> Sequence[str]:
    run = scene.run()
    words = ("--product", scene.product, "--owner", "mario", "--contains", "assert <n>")
    scene.seatrial("known-issue", "add", "known", *words, "--expires", scene.day(5))
    return [run]


def _approves_all(scene: Scene) -> Sequence[str]:
    """A known issue of his own, and then his own yes to the verdict."""
    run = _knows(scene)[0]
    scene.check(run)
    scene.seatrial("gate", "approve", scene.product)
    return [run]


_ONE_LINE = """import mylib

def test_double(): assert mylib.double(2) == 4
def test_triple(): assert mylib.triple(2) == 6
"""


_TESTS = """import mylib
from helpers import same

def test_{0}():
    same(mylib.{0}(2), {1})
"""
_SHARE = {
    "t/helpers.py": "def same(one, other):\n    assert one == other\n",
    "t/test_double.py": _TESTS.format("double", 4),
    "t/test_triple.py": _TESTS.format("triple", 6),
}
_NAMED = "import mylib\n\n\ndef test_value():\n    assert mylib.{}(2) == {}\n"
_NAMESAKES = {
    "t/one/test_it.py": _NAMED.format("double", 4),
    "t/two/test_it.py": _NAMED.format("triple", 6),
    **{f"t/{folder}/__init__.py": "" for folder in ("one", "two")},
}


def _borrows(scene: Scene, files: Mapping[str, str]) -> Sequence[str]:
    """A known issue of a test whose failure reads as another's does."""
    scene.payload(files)
    scene.subject(GOOD.replace("3 * x", "3 * x + 1"))
    shown = scene.seatrial("show", scene.run()).stdout
    words = ("--product", scene.product, "--owner", "mario", "--expires", scene.day(5))
    (signature,) = set(re.findall(r"s1-[0-9a-f]{12}", shown))
    scene.seatrial("known-issue", "add", "known", *words, "--signature", signature)
    scene.subject(DEFECT, version="1.1")
    return [scene.run()]


_ALONE = {**POLICY, **ALONE}
LIES = (
    Lie("an exception that its author approves", _fails, _excused("mario")),
    Lie("an exception that its author approves in capitals", _fails, _excused("MARIO")),
    Lie(
        "an exception approved by its author and a zero-width space",
        _fails,
        _excused("mario\u200b"),
    ),
    Lie("an exception approved by its author in full width", _fails, _excused("ｍａｒｉｏ")),
    Lie("an exception approved by its author with a Cyrillic letter", _fails, _excused("mаrio")),
    Lie("an exception approved by its author with a dotless i", _fails, _excused("marıo")),
    Lie("an exception approved by its author and a space", _fails, _excused(" mario ")),
    Lie("an exception until 2999", _fails, _excused("luigi", expires="2999-01-01")),
    Lie("an exception that names nothing", _fails, {**_excused("luigi", failing={}), **ALONE}),
    Lie(
        "an exception for another test",
        _fails,
        {**_excused("luigi", failing={"t/test_rest.py::test_name": 1}), **ALONE},
    ),
    Lie("an exception from every rule", _fails, _excused("luigi", rule="*")),
    Lie("a known issue of every failure", _fails, _issue(exception="*")),
    Lie("a known issue that contains nothing", _fails, _issue(contains="")),
    *(
        Lie(f"a known issue of another test {how}", partial(_borrows, files=files), _ALONE)
        for how, files in (
            ("that is written in one line", {"t/test_one.py": _ONE_LINE}),
            ("that fails in the same function", _SHARE),
            ("of the same name in another folder", _NAMESAKES),
        )
    ),
    Lie("a waiver of his own", _waives),
    Lie("the failing test in quarantine", _quarantines),
    Lie("a known issue that he adds himself", _knows),
    Lie("a known issue and an approval of his own", _approves_all),
)

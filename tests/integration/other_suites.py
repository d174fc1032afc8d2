"""The suites that `test_other_projects` runs, and how."""

from __future__ import annotations

from tests.integration.other_projects import Project


def _some(folder: str, pattern: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{pattern.format(name)}.py" for name in names.split())


ASYNC = """
import asyncio

import pytest


@pytest.fixture
async def resource():
    await asyncio.sleep(0)
    yield 1
    await asyncio.sleep(0)


@pytest.fixture
async def broken():
    raise RuntimeError("async setup")


@pytest.fixture
async def untidy():
    yield 1
    raise RuntimeError("async teardown")


@pytest.mark.asyncio
async def test_with_async_fixture(resource):
    assert resource == 1


@pytest.mark.asyncio
async def test_bad(resource):
    assert resource == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("n", [1, 2, 3])
async def test_gathered(n):
    assert await asyncio.gather(*(asyncio.sleep(0, n) for _ in range(n))) == [n] * n


@pytest.mark.asyncio
async def test_broken(broken):
    pass


@pytest.mark.asyncio
async def test_untidy(untidy):
    assert untidy == 1


@pytest.mark.asyncio
@pytest.mark.xfail(reason="known")
async def test_known():
    raise ValueError("known")


@pytest.mark.asyncio
@pytest.mark.xfail(reason="mended")
async def test_mended():
    pass


class TestTogether:
    @pytest.mark.asyncio
    async def test_skipped(self):
        pytest.skip("no loop - [on] this :: machine")

    @pytest.mark.asyncio
    async def test_prints(self, capsys):
        with capsys.disabled():
            print("printed beside the outcome")
"""
SUBTESTS = """
import unittest


class Case(unittest.TestCase):
    def test_parts(self):
        for n in range(4):
            with self.subTest("part", n=n):
                self.assertNotEqual(n % 2, 1)

    def test_whole(self):
        with self.subTest(n=1):
            pass


def test_fixture(subtests):
    for n in range(3):
        with subtests.test(msg="a - b [c]", n=n):
            assert n != 1


def test_fixture_alone(subtests):
    with subtests.test():
        pass
    assert 0, "after its subtests"
"""
FLAKY = """
import pytest

TRIES = {}


def tries(name):
    TRIES[name] = TRIES.get(name, 0) + 1
    return TRIES[name]


def test_good():
    pass


def test_second_time():
    assert tries("second") == 2


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_up_to(n):
    assert tries(f"up to {n}") >= n


@pytest.fixture
def shaky():
    if tries("fixture") < 3:
        raise OSError("not yet")


def test_shaky(shaky):
    pass


def test_never():
    assert 0


def test_skipped():
    pytest.skip("never mind")
"""
TOOLZ = Project("toolz", ("toolz",), ("toolz",))
JSONSCHEMA = Project(
    "jsonschema", ("--continue-on-collection-errors", "jsonschema"), ("jsonschema",)
)
AIOSQLITE = Project("aiosqlite", ("aiosqlite/tests/smoke.py",), ("aiosqlite",))
MPMATH = Project(
    "mpmath",
    _some(
        "mpmath/tests",
        "test_{}",
        "basic_ops bitwise convert diff division fp interval linalg matrices power special trig",
    ),
    ("mpmath",),
)
TORNADO = Project(
    "tornado",
    # Its own runner takes the handlers of logging away, and some tests count on that.
    (
        "-p",
        "no:logging",
        *_some("tornado/test", "{}_test", "escape gen http1connection locks queues routing util"),
    ),
    ("tornado",),
)
NETWORKX = Project(
    "networkx",
    (
        "--doctest-modules",
        "networkx/utils",
        *_some("networkx/classes", "{}", "digraph graph function tests/test_reportviews"),
    ),
    ("networkx",),
)
SYMPY = Project(
    "sympy",
    ("-k", "not ordinals", *_some("sympy/sets/tests", "test_{}", "contains ordinals powerset")),
    ("sympy/sets/tests",),
)
ASYNCIO = Project(
    "asyncio", ("tests",), files={"tests/test_async.py": ASYNC, "tests/test_parts.py": SUBTESTS}
)
RERUNS = Project("reruns", ("--reruns", "2", "tests"), files={"tests/test_flaky.py": FLAKY})

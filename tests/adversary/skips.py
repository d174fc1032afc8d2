"""The test that would fail does not run, and says so."""

from __future__ import annotations

from tests.adversary.lie import Lie, one_run, suite

_DOUBLE = "import mylib, pytest, unittest\n\n"
_ASSERT = "    assert mylib.double(2) == 4\n"


def _marked(mark: str) -> dict[str, str]:
    return {"t/test_double.py": f"{_DOUBLE}{mark}\ndef test_double():\n{_ASSERT}"}


_ALL_SKIPPED = {"t/test_a.py": f"{_DOUBLE}pytestmark = pytest.mark.skip\ndef test_a():\n{_ASSERT}"}
_ALL_XFAIL = {"t/test_a.py": f"{_DOUBLE}pytestmark = pytest.mark.xfail\ndef test_a():\n{_ASSERT}"}
_SKIP = _marked("@pytest.mark.skip(reason='later')")
_XFAIL = _marked("@pytest.mark.xfail")
_MODULE = {"t/test_double.py": f"{_DOUBLE}pytest.skip('later', allow_module_level=True)\n"}
_UNITTEST = {
    "t/test_double.py": f"{_DOUBLE}class TestDouble(unittest.TestCase):\n"
    "    @unittest.expectedFailure\n    def test_double(self):\n    " + _ASSERT
}
_FIXTURE = {
    "conftest.py": "import pytest\n@pytest.fixture(autouse=True)\n"
    "def device(request):\n    if 'double' in request.node.name: pytest.skip('no device')\n"
}
_ALL_BY_FIXTURE = {
    "conftest.py": "import pytest\n@pytest.fixture(autouse=True)\n"
    "def device(): pytest.skip('no device')\n"
}
_ADDS_XFAIL = {
    "conftest.py": "import pytest\ndef pytest_collection_modifyitems(items):\n"
    "    for item in items: item.add_marker(pytest.mark.xfail)\n"
}
_EMPTY = {
    "t/test_double.py": f"{_DOUBLE}@pytest.mark.parametrize('n', [])\n"
    f"def test_double(n):\n{_ASSERT}"
}

LIES = (
    Lie("everything is skipped", one_run(_ALL_SKIPPED, only=True)),
    Lie("everything is skipped by a fixture", one_run(_ALL_BY_FIXTURE)),
    Lie("everything is expected to fail", one_run(_ALL_XFAIL, only=True)),
    Lie("the failing test is skipped, after a green release", one_run(_SKIP, after_green=True)),
    Lie(
        "the failing test is expected to fail, after a green release",
        one_run(_XFAIL, after_green=True),
    ),
    Lie(
        "unittest expects the failure, after a green release", one_run(_UNITTEST, after_green=True)
    ),
    Lie("the module skips itself, after a green release", one_run(_MODULE, after_green=True)),
    Lie(
        "a fixture skips the failing test, after a green release",
        one_run(_FIXTURE, after_green=True),
    ),
    Lie(
        "conftest marks all tests xfail, after a green release",
        one_run(_ADDS_XFAIL, after_green=True),
    ),
    Lie("conftest marks all tests xfail", one_run(_ADDS_XFAIL)),
    Lie(
        "the failing test has no parameters, after a green release",
        one_run(_EMPTY, after_green=True),
    ),
    Lie(
        "pytest.ini says what an empty parameter set is, after a green release",
        one_run(
            {**_EMPTY, "pytest.ini": "[pytest]\nempty_parameter_set_mark = xfail\n"},
            after_green=True,
        ),
    ),
    Lie("--runxfail is taken back by noxfail", one_run(_ALL_XFAIL, only=True, jobs=suite("-rx"))),
)

"""The built-in payload offers every test that earlier validations named."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.payload.collected import ROOT, collected

LOGS = ROOT / "tests" / "golden" / "logs" / "gcp_l4_v046"
NAMES = ROOT / "tests" / "golden" / "payload" / "names.txt"
NODE = re.compile(r"^tests/(\S+::\S.*?) (?:PASSED|FAILED|SKIPPED)", re.MULTILINE)
MOVED = {  # the reports put it into another class than the log, and name one that never ran
    "test_nvidia_backend.py::TestNVIDIAOptimizer::test_optimization_warnings": (
        "test_nvidia_backend.py::TestNVIDIAErrorPaths::test_optimization_warnings"
    )
}
NEVER_RAN = {"test_nvidia_backend.py::TestCUDAUtilities::test_cuda_device_properties"}


@pytest.mark.parametrize(
    ("log", "suites", "count"),
    [
        ("moe_tests.txt", {"test_moe.py"}, 48),
        ("fp8_tests.txt", {"test_fp8_native.py", "test_fp8_training.py"}, 71),
        ("nvidia_backend.txt", {"test_nvidia_backend.py"}, 66),
    ],
)
def test_the_suites_have_exactly_the_tests_of_the_log(log, suites, count):
    named = {MOVED.get(x, x) for x in NODE.findall((LOGS / log).read_text("utf-8"))}
    assert len(named) == count
    offered = {x for x in collected() if x.split("::")[0] in suites}
    assert offered - NEVER_RAN == named


def test_every_name_is_offered_in_its_class_as_often_as_it_was():
    wanted = dict(line.rsplit(" ", 1) for line in NAMES.read_text("utf-8").splitlines())
    suites = {name.split("::")[0] for name in wanted}
    offered = Counter(x.split("[")[0] for x in collected() if x.split("::")[0] in suites)
    assert offered == {name: int(count) for name, count in wanted.items()}


def test_there_are_at_least_a_thousand_tests():
    assert len(collected()) >= 1000
    assert len(set(collected())) == len(collected())


def test_names_are_the_same_in_every_process():
    assert collected() == collected("2"), "a name that depends on the order of a set is no identity"

"""Which tests of two versions are the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz

from orchestrator.domain.node_ids import (
    NameChange,
    Suggestion,
    compare_names,
    job_family,
    makes_a_circle,
    natural_order,
    resolve,
    split_nodeid,
    take_apart,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MODULE = "tests/test_nvidia_backend.py"
MOVED = "test_optimization_warnings"


def alike(one: str, other: str) -> float:
    return fuzz.ratio(one, other) / 100


def seed_names() -> list[str]:
    """The names that seed 004 lists under its classes."""
    names, cls = [], ""
    for line in (GOLDEN / "seeds" / "004.md").read_text("utf-8").splitlines():
        if heading := re.match(r"#### (Test\w+) \(\d+ tests\)", line):
            cls = heading[1]
        elif cls and (test := re.match(r"- `(test_\w+)` - ", line)):
            names.append(f"{MODULE}::{cls}::{test[1]}")
    return names


def log_names() -> list[str]:
    log = (GOLDEN / "logs" / "gcp_l4_v046" / "nvidia_backend.txt").read_text("utf-8")
    return re.findall(r"^(\S+::\S+) (?:PASSED|FAILED|SKIPPED)", log, re.MULTILINE)


def test_sixty_six_are_not_the_same_sixty_six():
    old, new = seed_names(), log_names()
    assert (len(old), len(new)) == (66, 66)
    changes = compare_names(old, new, alike)
    assert str(changes) == "66 = 64 same + 1 moved + 1 new, 1 gone"
    assert changes.suggestions == (
        Suggestion(
            f"{MODULE}::TestNVIDIAErrorPaths::{MOVED}",
            f"{MODULE}::TestNVIDIAOptimizer::{MOVED}",
            NameChange.MOVED,
            1.0,
        ),
    )
    assert [name.rsplit("::", 1)[-1] for name in changes.gone] == ["test_cuda_device_properties"]
    assert [name.rsplit("::", 1)[-1] for name in changes.new] == [
        "test_memory_check_when_cuda_unavailable"
    ]


def test_what_a_person_confirmed_is_the_same_and_what_was_rejected_is_not_asked_again():
    old, new = seed_names(), log_names()
    pair = (
        f"{MODULE}::TestNVIDIAErrorPaths::{MOVED}",
        f"{MODULE}::TestNVIDIAOptimizer::{MOVED}",
    )
    confirmed = compare_names(old, new, alike, confirmed=dict([pair]))
    assert str(confirmed) == "66 = 65 same + 1 new, 1 gone"
    rejected = compare_names(old, new, alike, rejected=[pair])
    assert str(rejected) == "66 = 64 same + 2 new, 2 gone"


def test_the_order_of_parameters_is_suggested_and_never_merged():
    changes = compare_names(
        ["a.py::test_x[cpu-half-ip]", "a.py::test_x[1-2]"],
        ["a.py::test_x[half-cpu-ip]", "a.py::test_x[1-2]"],
        alike,
    )
    (one,) = changes.suggestions
    assert (one.change, one.new) == (NameChange.PARAMETERS, "a.py::test_x[half-cpu-ip]")
    assert changes.same == ("a.py::test_x[1-2]",)
    assert str(changes) == "2 = 1 same + 1 with parameters in another order"


def test_where_several_would_fit_nothing_is_guessed():
    changes = compare_names(
        ["a.py::A::test_get", "a.py::B::test_get"], ["a.py::C::test_get"], alike
    )
    assert (changes.suggestions, changes.new) == ((), ("a.py::C::test_get",))
    assert changes.ambiguous == ("a.py::C::test_get",)
    swapped = compare_names(["a.py::t[1-2]", "a.py::t[2-1]"], ["a.py::t[2-1]"], alike)
    assert (swapped.suggestions, swapped.gone) == ((), ("a.py::t[1-2]",))


def test_a_new_name_in_the_same_class_is_a_rename_when_it_is_alike():
    changes = compare_names(
        ["a.py::A::test_estimate_speedup", "a.py::A::test_one"],
        ["a.py::A::test_estimates_speedup", "a.py::A::test_completely_other"],
        alike,
    )
    assert [one.change for one in changes.suggestions] == [NameChange.RENAMED]
    assert str(changes) == "2 = 1 renamed + 1 new, 1 gone".replace("= 1", "= 0 same + 1")


def test_a_file_that_moved_takes_all_its_tests_along():
    old = [f"tests/test_a.py::A::test_{i}" for i in range(200)]
    new = [name.replace("tests/test_a", "tests/unit/test_a") for name in old]
    changes = compare_names(old, new, alike)
    assert len(changes.suggestions) == 200
    assert {one.change for one in changes.suggestions} == {NameChange.MOVED}


@given(
    st.lists(st.sampled_from([f"{p}::{c}::{f}" for p in "ab" for c in "CD" for f in "xyz"])),
    st.lists(st.sampled_from([f"{p}::{c}::{f}[1-2]" for p in "ab" for c in "CD" for f in "xyz"])),
    st.data(),
)
def test_every_name_is_accounted_for_once(old, more, data):
    new = data.draw(st.lists(st.sampled_from([*old, *more]))) if old or more else []
    changes = compare_names(old, new, lambda a, b: 1.0)
    came = [*changes.same, *(one.new for one in changes.suggestions), *changes.new]
    assert sorted(came) == sorted(set(new))
    went = [*changes.same, *(one.old for one in changes.suggestions), *changes.gone]
    assert sorted(went) == sorted(set(old))
    assert changes.total == len(set(new))


def test_names_are_taken_apart():
    assert split_nodeid("a/b.py::A::B::f[x-[y]]") == ("a/b.py", "A::B", "f", "x-[y]")
    assert take_apart("a.py::f[b-a--1]").parameters == ("-1", "a", "b")
    assert take_apart("./a\\b.py::f").path == "a/b.py".replace("a/", "./a/").removeprefix("./")


@pytest.mark.parametrize(
    ("job", "family"),
    [
        ("moe", "moe"), ("moe-tests", "moe"), ("NVIDIA-Backend-suite", "nvidia-backend"),
        ("moe_v0.4.6", "moe"), ("tests", "tests"), ("fp8", "fp8"),
    ],
)  # fmt: skip
def test_jobs_that_hold_the_same_tests_are_one_family(job, family):
    assert job_family(job) == family


def test_aliases_are_followed_and_never_go_in_a_circle():
    assert resolve(1, {1: 2, 2: 3}) == 3
    assert resolve(1, {1: 2, 2: 1}) in (1, 2)
    assert makes_a_circle(3, 1, {1: 2, 2: 3})
    assert makes_a_circle(1, 1, {})
    assert not makes_a_circle(3, 4, {1: 2, 2: 3})


def test_the_natural_order_goes_by_the_value_of_numbers():
    names = ["t[10]", "t[2]", "t10", "t", f"t[{'9' * 5000}]", "t[01]", "t2", "t[1]", "t[a]"]
    assert sorted(names, key=natural_order) == [
        "t", "t2", "t10", "t[01]", "t[1]", "t[2]", "t[10]", f"t[{'9' * 5000}]", "t[a]",
    ]  # fmt: skip

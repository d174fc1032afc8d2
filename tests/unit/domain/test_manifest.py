from __future__ import annotations

from typing import Any

import pytest

from orchestrator.domain.manifest import (
    Environment,
    Job,
    Manifest,
    PythonChoice,
    Setup,
    check_manifest,
    dropped_exit_codes,
    untaken_tests,
    untested,
)
from tests.unit.domain.builders import manifest


def job(**changes: Any) -> Manifest:
    return manifest(job=(Job(**{"id": "j", "kind": "demo", "command": ("x",), **changes}),))


CASES = [
    (manifest(job=()), ("job",), "at least one [[job]]"),
    (manifest("a", "a"), ("job", 1, "id"), "'a' is the id of 2 jobs"),
    (manifest("a/b"), ("job", 0, "id"), "must be letters, digits"),
    (manifest("../x"), ("job", 0, "id"), "must be letters, digits"),
    (manifest("x" * 65), ("job", 0, "id"), "at most 64"),
    (manifest(root="/etc"), ("root",), "must be relative"),
    (manifest(environments=("a b",)), ("env", "a b"), "must be letters, digits"),
    (manifest(environments=("image",), setup=Setup()), ("setup",), "keep one of them"),
    (job(command=()), ("job", 0), "needs either `pytest` or `command`, with at least one word"),
    (job(pytest=("t",)), ("job", 0), "needs either `pytest` or `command`, not both"),
    (job(kind="suite"), ("job", 0, "kind"), "suite 'j' needs `pytest`"),
    (job(command=(), pytest=("t",)), ("job", 0, "kind"), "demo 'j' needs `command`"),
    (job(timeout_minutes=0), ("job", 0, "timeout_minutes"), "more than 0"),
    (job(idle_timeout_minutes=-1), ("job", 0, "idle_timeout_minutes"), "more than 0"),
    (job(gpus=-1), ("job", 0, "gpus"), "not be negative"),
    (job(env={"A=B": "x"}), ("job", 0, "env", "A=B"), "cannot be the name of a variable"),
    (job(id="gpu_info"), ("job", 0, "id"), "'gpu_info' is taken"),
    (job(metrics=("../a.json",)), ("job", 0, "metrics", 0), "must be `output`, or a file below"),
    (job(metrics=("./a.json",)), ("job", 0, "metrics", 0), "must be `output`, or a file below"),
    (
        job(metrics=("a/b.json", "a-b.json")),
        ("job", 0, "metrics", 1),
        "'a-b.json' and 'a/b.json' are both stored as 'j.a-b.json': rename the file",
    ),
    (job(metrics=("a", "a")), ("job", 0, "metrics", 1), "'a' occurs twice"),
    (job(metrics=("output", "output")), ("job", 0, "metrics", 1), "'output' occurs twice"),
    (
        job(metrics=("txt",)),
        ("job", 0, "metrics", 0),
        "'txt' and the job's output are both stored as 'j.txt'",
    ),
    (
        job(id="environment", metrics=("json",)),
        ("job", 0, "metrics", 0),
        "'json' and a file of the attempt are both stored as 'environment.json'",
    ),
    (
        job(id="attempt-2", metrics=("events.jsonl",)),
        ("job", 0, "metrics", 0),
        "'events.jsonl' and a file of the attempt are both stored as 'attempt-2.events.jsonl'",
    ),
    (
        manifest(env={"e": Environment(variables={"": "x"})}),
        ("env", "e", "variables", ""),
        "cannot be the name of a variable",
    ),
]


@pytest.mark.parametrize(("made", "path", "words"), CASES)
def test_a_senseless_manifest_is_refused(made: Manifest, path: object, words: str) -> None:
    problems = check_manifest(made)
    assert [p for p in problems if p.path == path and words in p.message], problems


def test_a_sensible_manifest_has_no_problems() -> None:
    named = ("a/b.json", "a/b-c.json", "output", "output.json")
    suite = Job(id="s", kind="suite", pytest=("suites",), env={"A": "b"}, metrics=named)
    assert (
        check_manifest(manifest(job=(*manifest().job, suite), environments=("tpu",), root=".."))
        == ()
    )


def test_the_image_environment_always_exists_and_setup_is_its_short_form() -> None:
    assert manifest().environment("image") == Environment()
    assert manifest(setup=Setup(pip=("x",))).environment("image") == Environment(pip=("x",))
    assert manifest().environment("tpu") is None


def test_requirements_name_packages() -> None:
    python = PythonChoice(requires=("torch>=2.7", "Ruamel.YAML"))
    pip = ("pytest[x]>=8; python_version>'3'", "a_b @ https://h/a.whl")
    made = manifest(python=python, env={"tpu": Environment(pip=pip)})
    assert made.named_packages("tpu") == {"torch", "ruamel-yaml", "pytest", "a-b"}
    assert made.named_packages("image") == {"torch", "ruamel-yaml"}
    assert manifest(environments=("tpu", "image")).environment_names == ("image", "tpu")


def test_a_job_without_a_title_is_called_by_its_id() -> None:
    assert Job(id="j", kind="demo").name == "j"
    assert Job(id="j", kind="demo", title="J!").name == "J!"


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("bash", "-c", "python d.py | tee o.log"), "|"),
        (("/bin/sh", "-c", "python d.py || true"), "|| true"),
        (("sh", "-c", "python d.py; echo done"), "; echo done"),
        (("sh", "-c", "python d.py &"), "&"),
        (("bash", "-o", "pipefail", "-c", "python d.py | tee o.log"), ""),
        (("bash", "-ec", "python d.py; echo done"), ""),
        (("bash", "-c", "set -e; python d.py; echo done"), ""),
        (("sh", "-c", "python d.py && python e.py > o.log 2>&1"), ""),
        (("sh", "-c", "python d.py || exit 1"), ""),
        (("sh", "-c", "python d.py & wait $!"), ""),
        (("sh", "-c", "cd d; python d.py"), ""),
        (("python", "-c", "print(1 | 2)"), ""),
    ],
)
def test_a_shell_that_drops_an_exit_code(command: tuple[str, ...], what: str) -> None:
    said = f"job j ends well whatever the program before `{what}` ends with"
    told = list(dropped_exit_codes(job(command=command)))
    assert told == ([f"{said}: the shell drops its exit code"] if what else [])


FILES = ("tests/test_a.py", "tests/deep/test_b.py", "src/lib/a_test.py", "tests/helper.py")


@pytest.mark.parametrize(
    ("jobs", "untaken"),
    [
        ([("tests",)], "src/lib/a_test.py"),
        ([("tests/test_a.py",)], "src/lib/a_test.py tests/deep/test_b.py"),
        ([("tests/test_a.py::test_x", "-k", "y")], "src/lib/a_test.py tests/deep/test_b.py"),
        ([("./tests/deep/",), ("src/lib",)], "tests/test_a.py"),
        ([("tests", "src")], ""),
        ([("--myoption", "tests", "src")], ""),
        ([(".",)], ""),
        ([("-q",)], ""),
        ([("--pyargs", "lib.tests")], ""),
        ([("@words.txt",)], ""),
        ([("linked",)], "src/lib/a_test.py tests/test_a.py"),
        ([("tests",), "{python} src/lib/a_test.py"], ""),
        ([("tests",), "{python} -m lib.a_test"], ""),
        ([("tests/test_a.py",), "{python} demo.py"], "src/lib/a_test.py tests/deep/test_b.py"),
        (["{python} -m unittest"], ""),
        (["tox -e py"], ""),
        (["{python} demo.py"], "src/lib/a_test.py tests/deep/test_b.py tests/test_a.py"),
    ],
)
def test_shipped_tests_that_no_job_takes(jobs: list[tuple[str, ...] | str], untaken: str) -> None:
    made = manifest(
        job=tuple(
            Job(id=f"j{n}", kind="demo", command=tuple(said.split()))
            if isinstance(said, str)
            else Job(id=f"j{n}", kind="suite", pytest=said)
            for n, said in enumerate(jobs)
        )
    )
    names = (*FILES, ".tox/py/test_c.py", "x/site-packages/test_d.py", "node_modules/test_e.py")
    assert untaken_tests(made, names, {"linked": "tests/deep"}) == tuple(untaken.split())


def test_they_are_told_in_a_sentence_each() -> None:
    many = tuple(f"test_{n}.py" for n in range(7))
    made = manifest("a", untaken_tests=many, excluded_tests=("test_x.py",))
    assert list(untested(made)) == [
        "no job takes test_0.py, test_1.py, test_2.py, test_3.py, test_4.py and 2 more",
        "`exclude` of payload.toml keeps out test_x.py, with the names of tests",
    ]
    assert list(untested(manifest("a"))) == []

"""A release passed, and the next one is not compared with it: what it had is under another name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tests.adversary.lie import Lie, Telling, demo
from tests.adversary.platforms import LOCAL
from tests.adversary.scene import DEFECT, DEMO, GOOD, HONEST, PLATFORM, SUITE, Scene

_REST = '[[job]]\nid = "rest"\nkind = "suite"\npytest = ["t/test_rest.py"]\n'
_FEWER = {"t/test_rest.py": HONEST["t/test_rest.py"]}
_SKIPS = {
    **HONEST,
    "t/test_double.py": "import pytest\n\ndef test_double(): pytest.skip('not today')\n",
}
_SKIPS_ALL = {
    **HONEST,
    "t/test_double.py": "import pytest\npytest.importorskip('nothing_like_it')\n",
}


def _spec(*names: str) -> Mapping[str, Any]:
    return {"platforms": [{"id": name} for name in names]}


def _rows(*names: str) -> str:
    return "".join(f"  - {{id: {name}, provider: local}}\n" for name in names)


def _on(suite: str, *rest: str) -> str:
    """Return jobs: the suite that finds the defect on one platform, the other one elsewhere."""
    return f"  - {{id: suite, on: [{suite}]}}\n" + "".join(
        f"  - {{id: rest, on: [{name}]}}\n" for name in rest
    )


def _passes(scene: Scene, version: str, spec: Mapping[str, Any], **how: str) -> None:
    """A sound release passes the gate; the next one has the defect."""
    scene.subject(GOOD, version=version)
    verdict = scene.check(scene.run(**how), spec=spec)
    assert verdict.passed, verdict
    scene.subject(DEFECT)


def _of_two(
    *then: str, suite: str = "", files: Mapping[str, str] = _FEWER, rest: Sequence[str] = ()
) -> Telling:
    """The release had its suite on the second of two platforms; now the platforms are `then`."""

    def tell(scene: Scene) -> Sequence[str]:
        scene.payload(HONEST, jobs=SUITE + _REST)
        both = _spec("one", "two")
        _passes(scene, "0.9", both, rows=_rows("one", "two"), jobs=_on("two", "one"))
        scene.payload(files, jobs=(SUITE if suite else "") + _REST)
        others = rest or [name for name in then if name != suite]
        jobs = _on(suite, *others) if suite else "  - {id: rest, on: all}\n"
        return [scene.run(rows=_rows(*then), jobs=jobs)]

    return tell


def _reporting(*lines: str) -> dict[str, str]:
    """A demo that uses the subject and reports these lines about itself."""
    told = "\n".join(f"    print({line!r}, file=out)" for line in lines) or "    pass"
    code = "import os\nimport mylib\n\nmylib.triple(2)\n"
    return {"demo.py": f'{code}with open(os.environ["SEATRIAL_EVENTS"], "a") as out:\n{told}\n'}


_SAME = '{"check": "same", "outcome": "passed"}'
_DOUBLE = '{"check": "double", "outcome": "passed"}'
_SKIPPED = '{"check": "double", "outcome": "skipped", "reason": "not today"}'
_TOOK = '{"metric": "took", "samples": [1.0], "unit": "ms", "direction": "lower"}'


def _reports_less(files: Mapping[str, str], jobs: str = DEMO) -> Telling:
    """The release's demo checked what is broken; the next one's does not, or is not there."""

    def tell(scene: Scene) -> Sequence[str]:
        rest = {"t/test_rest.py": HONEST["t/test_rest.py"]}
        scene.payload({**rest, **_reporting(_SAME, _DOUBLE, _TOOK)}, jobs=_REST + DEMO)
        _passes(scene, "0.9", _spec(PLATFORM))
        scene.payload({**rest, **files}, jobs=_REST + jobs)
        return [scene.run()]

    return tell


def _in_two_steps(scene: Scene) -> Sequence[str]:
    """A verdict without the platform lies between its old name and its new one."""
    scene.payload(HONEST, jobs=SUITE + _REST)
    both = _spec("one", "two")
    _passes(scene, "0.8", both, rows=_rows("one", "two"), jobs=_on("two", "one"))
    scene.payload(_FEWER, jobs=_REST)
    jobs = "  - {id: rest, on: all}\n"
    given_up = {**_spec("one"), "evidence": {"manifest": {"removed_tests": "allowed"}}}
    _passes(scene, "0.9", given_up, rows=_rows("one"), jobs=jobs)
    return [scene.run(rows=_rows("one", "three"), jobs=jobs)]


def _advisory_now(scene: Scene) -> Sequence[str]:
    """The only platform becomes advisory, beside a new one on the same machine."""
    _passes(scene, "0.9", _spec("one"), rows=_rows("one"))
    scene.payload(_FEWER)
    return [scene.run(rows=_rows("one", "other"))]


def _dropped(scene: Scene) -> Sequence[str]:
    """The platform with the suite is dropped; the one that is kept never had it."""
    scene.payload(HONEST, jobs=SUITE + _REST)
    both = _spec("one", "two")
    _passes(scene, "0.9", both, rows=_rows("one", "two"), jobs=_on("two", "one"))
    return [scene.run(rows=_rows("one"), jobs="  - {id: rest, on: all}\n")]


def _one_renamed(files: Mapping[str, str]) -> Telling:
    """The only platform has another name, and the payload is another."""

    def tell(scene: Scene) -> Sequence[str]:
        _passes(scene, "0.9", _spec("one"), rows=_rows("one"))
        scene.payload(files)
        return [scene.run(rows=_rows("other"))]

    return tell


def _swapped(scene: Scene) -> Sequence[str]:
    """The machine that had the suite has the name of the one that had it not."""
    scene.payload(HONEST, jobs=SUITE + _REST)
    host, computer = scene.stage.row, _rows(PLATFORM)
    rows = (
        computer.replace(PLATFORM, "one") + host.replace(f"id: {PLATFORM}", "id: two"),
        computer.replace(PLATFORM, "two") + host.replace(f"id: {PLATFORM}", "id: one"),
    )
    _passes(scene, "0.9", _spec("one", "two"), rows=rows[0], jobs=_on("two", "one"))
    on_the_host = "import os, mylib\n\ndef test_double():\n    {}assert mylib.double(2) == 4\n"
    scene.payload(
        {**HONEST, "t/test_double.py": on_the_host.format(f"if os.getuid() != {os.getuid()}: ")},
        jobs=SUITE + _REST,
    )
    return [scene.run(rows=rows[1], jobs=_on("two", "one"))]


def _failed_behind_a_decoy(scene: Scene) -> Sequence[str]:
    """What failed has another name; the old one is a row that the policy does not judge."""
    once = scene.folder / "once"
    once.mkdir()
    scene.payload(
        {
            **HONEST,
            "t/test_double.py": "import pathlib\n\ndef test_double():\n"
            f"    once = pathlib.Path({str(once / 'mark')!r})\n    first = not once.exists()\n"
            "    once.touch()\n    assert not first\n",
        },
        jobs=SUITE + demo("hello", "print(1)"),
    )
    scene.run(rows=_rows("two"))
    jobs = "  - {select: '*', on: [three]}\n  - {id: hello, on: [two]}\n"
    return [scene.run(rows=_rows("two", "three"), jobs=jobs)]


def _shown_with_an_old_run(scene: Scene) -> Sequence[str]:
    """A run of before the release that passed is shown beside the new one, or alone."""
    scene.payload(_FEWER)
    old = scene.run()
    scene.payload(HONEST)
    scene.green()
    scene.payload(_FEWER)
    return [old, scene.run()]


def _old_run_alone(scene: Scene) -> Sequence[str]:
    return _shown_with_an_old_run(scene)[:1]


def _environment_left_out(scene: Scene) -> Sequence[str]:
    """The environment in which the defect is seen is not asked for any more."""
    test = (
        "from importlib.metadata import distributions\nimport mylib\n\ndef test_double():\n"
        "    found = {(one.name, one.version) for one in distributions()}\n"
        "    assert mylib.double(2) == 4 or ('toolz', '1.1.0') not in found\n"
    )
    more = '\n[env.more]\npip = ["pytest>=8", "toolz==1.1.0"]\n'
    scene.payload({**HONEST, "t/test_double.py": test}, jobs=more + SUITE)
    rows = scene.stage.row.replace(f"id: {PLATFORM}", f"id: {PLATFORM}, environments: [{{}}]")
    both = rows.replace("[{}]", "[image, more]")
    _passes(scene, "0.9", _spec(PLATFORM), rows=both)
    return [scene.run(rows=rows.replace("[{}]", "[image]"))]


def _pruned(scene: Scene) -> Sequence[str]:
    """The results of the release that passed are deleted."""
    scene.green()
    scene.seatrial("db", "prune", "--older-than", "0", "-y")
    scene.payload(_FEWER)
    return [scene.run()]


def _job_renamed(scene: Scene) -> Sequence[str]:
    """The job has another name, without the test."""
    scene.green()
    scene.payload(_FEWER, jobs=SUITE.replace('"suite"', '"tests"', 1))
    return [scene.run()]


def _subject_renamed(scene: Scene) -> Sequence[str]:
    """The subject has another name, and the payload has the test no more."""
    scene.green()
    scene.payload(_FEWER)
    scene.name = "MyLib"
    return [scene.run()]


def _reused(scene: Scene) -> Sequence[str]:
    """The release that passed reused its evidence, and the next one skips the module."""
    scene.subject(GOOD, version="0.9")
    scene.run("--reuse", "24")
    again = scene.run("--reuse", "24")
    assert scene.check(again).passed
    scene.subject(DEFECT)
    scene.payload(_SKIPS_ALL)
    return [scene.run()]


def _again_and_again(scene: Scene) -> Sequence[str]:
    """The gate has passed nothing yet: what it refused is launched again until it passes."""
    scene.subject(GOOD, version="0.9")
    scene.payload(HONEST)
    scene.run()
    scene.subject(DEFECT)
    scene.payload(_FEWER)
    for _ in range(2):
        scene.check(scene.run())
    return [scene.run()]


LIES = (
    Lie(
        "one of two platforms is renamed, and its suite lacks the test",
        _of_two("one", "three", suite="three"),
        _spec("one", "three"),
        places=LOCAL,
    ),
    Lie(
        "one of two platforms is renamed, and its suite is gone",
        _of_two("one", "three"),
        _spec("one", "three"),
        places=LOCAL,
    ),
    Lie(
        "one of two platforms is renamed, and its test is skipped",
        _of_two("one", "three", suite="three", files=_SKIPS),
        _spec("one", "three"),
        places=LOCAL,
    ),
    Lie(
        "one of two platforms is renamed, and its module is skipped",
        _of_two("one", "three", suite="three", files=_SKIPS_ALL),
        _spec("one", "three"),
        places=LOCAL,
    ),
    Lie(
        "one of two platforms is renamed, and a row keeps its old name",
        _of_two("one", "two", "three"),
        _spec("one", "three"),
        places=LOCAL,
    ),
    Lie(
        "both platforms are renamed, and the suite of one is gone",
        _of_two("three", "four"),
        _spec("three", "four"),
        places=LOCAL,
    ),
    Lie(
        "both platforms are renamed, and the suite of one lacks the test",
        _of_two("three", "four", suite="four"),
        _spec("three", "four"),
        places=LOCAL,
    ),
    Lie(
        "a platform is split in two, and neither has the test",
        _of_two("one", "three", "four", suite="three", rest=["one", "four"]),
        _spec("one", "three", "four"),
        places=LOCAL,
    ),
    Lie(
        "a platform is renamed in two steps, and its suite is gone",
        _in_two_steps,
        _spec("one", "three"),
        places=LOCAL,
    ),
    Lie(
        "a platform of the baseline is advisory now",
        _advisory_now,
        {"platforms": [{"id": "one", "level": "advisory"}, {"id": "other"}]},
        places=LOCAL,
    ),
    Lie("the platform with the suite is dropped", _dropped, _spec("one"), places=LOCAL),
    Lie(
        "the only platform is renamed, and a test is skipped",
        _one_renamed(_SKIPS),
        _spec("other"),
        places=LOCAL,
    ),
    Lie(
        "the only platform is renamed, and a module is skipped",
        _one_renamed(_SKIPS_ALL),
        _spec("other"),
        places=LOCAL,
    ),
    Lie(
        "what failed on a platform is behind a row with its old name",
        _failed_behind_a_decoy,
        _spec("three"),
        places=LOCAL,
    ),
    Lie(
        "two machines swap their names, and the test has no machine that fails it",
        _swapped,
        _spec("one", "two"),
        places=("ssh",),
    ),
    Lie("a run of before the baseline is shown beside the new one", _shown_with_an_old_run),
    Lie("a run of before the baseline is shown alone", _old_run_alone),
    Lie(
        "an environment of the baseline is left out, and the others pass",
        _environment_left_out,
        places=LOCAL,
    ),
    Lie("a demo no longer reports a check", _reports_less(_reporting(_SAME, _TOOK))),
    Lie("a demo skips a check that passed", _reports_less(_reporting(_SAME, _SKIPPED, _TOOK))),
    Lie("a demo no longer reports a metric", _reports_less(_reporting(_SAME, _DOUBLE))),
    Lie("a demo is taken out of the payload", _reports_less({}, "")),
    Lie("what a new gate refused is launched again, without the test", _again_and_again),
    Lie("the baseline is pruned, and the test is gone", _pruned),
    Lie("a job of the baseline is renamed, and lacks the test", _job_renamed),
    Lie("the subject of the baseline is renamed, and the test is gone", _subject_renamed),
    Lie("the baseline reused its evidence, and the module is skipped", _reused),
)

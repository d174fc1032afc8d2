"""Runs, names, documents and baselines that stand for others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.adversary.histories import JUNIT, fails_once, open_folder
from tests.adversary.lie import Lie, demo, one_run
from tests.adversary.scene import DEFECT, GOOD, HONEST, POLICY, SUITE, Scene

LOCAL = ("local",)
_REST = {"t/test_rest.py": HONEST["t/test_rest.py"]}


def _spec(*names: str, **more: Any) -> Mapping[str, Any]:
    return {"platforms": [{"id": name} for name in names], **more}


def _row(name: str) -> str:
    return f"  - {{id: {name}, provider: local}}\n"


def _issue(**match: str) -> Mapping[str, Any]:
    about = {"id": "KI-1", "title": "known", "owner": "mario", "opened": "{today}"}
    return {**POLICY, "known_issues": [{**about, "expires": "{soon}", "match": match}]}


def _alias(scene: Scene) -> Sequence[str]:
    """A test that does nothing is said to be the one that found the defect."""
    old = scene.green()
    nothing = {"t/test_double.py": "import mylib\n\ndef test_doubles():\n    pass\n"}
    scene.payload({**HONEST, **nothing})
    new = scene.run()
    scene.seatrial("alias", "suggest", old, new)
    said = scene.seatrial("alias", "list", "--product", scene.product, "--json").stdout
    for found in json.loads(said):
        scene.seatrial("alias", "confirm", str(found["id"]))
    return [new]


def _reused_streak(scene: Scene) -> Sequence[str]:
    """One run, and two that reuse what it proved, where three in a row are asked for."""
    scene.subject(GOOD)
    scene.run()
    scene.run("--reuse", "36")
    return [scene.run("--reuse", "36")]


def _reused_after_failure(scene: Scene) -> Sequence[str]:
    """It passes, then it fails, and then what passed is used again."""
    place = open_folder(scene, "count")
    test = (
        "import pathlib\nimport mylib\n\ndef test_double():\n"
        f"    place = pathlib.Path({str(place)!r})\n"
        "    number = len(list(place.iterdir()))\n    (place / str(number)).touch()\n"
        "    assert number != 1\n"
    )
    scene.payload({**HONEST, "t/test_double.py": test})
    scene.run()
    scene.run()
    return [scene.run("--reuse", "36")]


def _typed_refusal(scene: Scene) -> Sequence[str]:
    """The platform that failed is said to have been unavailable, by a document."""
    fails_once(scene)
    run = scene.run(rows=_row("one") + _row("two"), more="limits: {max_parallel: 1}\n")
    folder = scene.folder / "typed"
    folder.mkdir()
    (folder / "ingest.yaml").write_text(
        "apiVersion: seatrial/v1\nkind: Ingest\nplatform: {id: one, provider: local}\n"
        f'subject: {{name: {scene.product}, version: "1.0"}}\n'
        "outcome: {word: not_available, reason: not_offered, detail: sold out}\n"
    )
    said = scene.seatrial("ingest", str(folder))
    return [run, said.stdout.strip()]


def _another_platform(scene: Scene) -> Sequence[str]:
    """It fails, and passes on the same machine under another name."""
    fails_once(scene)
    scene.run(rows=_row("one"))
    return [scene.run(rows=_row("two"))]


def _another_name_without_the_test(scene: Scene) -> Sequence[str]:
    """The platform has another name since the green release, and the test is gone."""
    scene.green()
    scene.payload(_REST)
    return [scene.run(rows=_row("there"))]


def _typed_baseline(scene: Scene) -> Sequence[str]:
    """Before the gate was ever asked, a document of fewer tests is the newest green run."""
    scene.subject(GOOD, version="0.9")
    scene.run()
    fewer = re.sub(r'<testcase classname="t.test_double".*?/>', "", JUNIT).replace('"3"', '"2"')
    (scene.folder / "results.xml").write_text(fewer)
    subject = f"{scene.product}@0.9"
    scene.seatrial("ingest", "results.xml", "--platform", "here", "--subject", subject)
    scene.subject(DEFECT)
    scene.payload(_REST)
    return [scene.run()]


def _against_itself(scene: Scene) -> Sequence[str]:
    """The slower wheel is its own baseline."""
    code = (
        "import json, os, time, mylib\nstart = time.perf_counter()\ntime.sleep(0.02)\n"
        "took = 1000 * (time.perf_counter() - start)\n"
        "with open(os.environ['SEATRIAL_EVENTS'], 'a') as out:\n"
        "    out.write(json.dumps(dict(metric='speed', samples=[took], unit='ms',"
        " direction='lower')) + '\\n')\n"
    )
    scene.payload(HONEST, jobs=demo("bench", code, "benchmark"))
    pairs = "min_pairs: 10, max_pairs: 10"
    return [scene.run(more=f'baseline: {{wheel: "{scene.source}", {pairs}}}\n')]


def _environments(scene: Scene) -> Sequence[str]:
    """It fails in one of two environments; the policy names the platform."""
    test = (
        "import os\nimport mylib\n\ndef test_double():\n"
        "    assert mylib.double(2) == 4 or 'FIXED' in os.environ\n"
    )
    both = '[env.one]\npip = ["pytest>=8"]\n[env.two]\npip = ["pytest>=8"]\n'
    both += 'variables = {FIXED = "1"}\n'
    scene.payload({**HONEST, "t/test_double.py": test}, jobs=SUITE + both)
    return [scene.run(rows="  - {id: here, provider: local, environments: [one, two]}\n")]


def _no_asserts(scene: Scene) -> Sequence[str]:
    """The environment, and not the job, switches assertions off."""
    fast = '[env.fast]\npip = ["pytest>=8"]\nvariables = {PYTHONOPTIMIZE = "1"}\n'
    scene.payload(HONEST, jobs=SUITE + fast)
    return [scene.run("--set", "here.environments=fast")]


def _another_version(scene: Scene) -> Sequence[str]:
    """The matrix says another version than the wheel's."""
    scene.subject(GOOD)
    scene.version = "1.1"
    return [scene.run()]


def _renamed_wheel(scene: Scene) -> Sequence[str]:
    """The wheel's file says another version than its metadata."""
    scene.subject(GOOD)
    wheel = scene.folder / scene.source
    scene.wheel(wheel.rename(wheel.with_name(wheel.name.replace("1.0", "1.1"))), "mylib")
    scene.version = "1.1"
    return [scene.run()]


LIES = (
    Lie("a known issue that contains a letter", one_run({}), _issue(contains="e")),
    Lie(
        "a test that does nothing is confirmed to be the failing one",
        _alias,
        inherent="text",
        shows="test_doubles",
    ),
    Lie(
        "three green runs in a row, of which two reuse the first",
        _reused_streak,
        {"platforms": [{"id": "here", "consecutive_green": 3}]},
    ),
    Lie("what passed before it failed is used again", _reused_after_failure),
    Lie(
        "a document says that the failed platform was not available",
        _typed_refusal,
        {
            "platforms": [
                {"id": "one", "when_unavailable": {"verdict": "advisory"}},
                {"id": "two"},
            ]
        },
        places=LOCAL,
    ),
    Lie(
        "it fails, and passes on the same machine by another name",
        _another_platform,
        _spec("two"),
        places=LOCAL,
    ),
    Lie(
        "the platform has another name, and the test is removed",
        _another_name_without_the_test,
        _spec("there"),
        places=LOCAL,
    ),
    Lie("a document of fewer tests becomes the baseline", _typed_baseline),
    Lie(
        "a subject that is its own baseline",
        _against_itself,
        {**POLICY, "performance": {"budgets": [{"match": "bench/*", "max_regression": "3%"}]}},
        places=LOCAL,
    ),
    Lie("it fails in one of two environments", _environments, places=LOCAL),
    Lie("the environment switches assertions off", _no_asserts),
    Lie("the matrix says another version than the wheel", _another_version),
    Lie("the wheel's name says another version than its metadata", _renamed_wheel),
    Lie(
        "the failing suite needs a GPU, and a demo does not",
        one_run({}, jobs=SUITE + "gpus = 1\n" + demo("demo", "print('hello')")),
    ),
    Lie(
        "the payload leaves the failing test at home, after a green release",
        one_run({}, manifest='exclude = ["*double*"]\n', after_green=True),
    ),
)

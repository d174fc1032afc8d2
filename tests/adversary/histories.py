"""A failure happened, and what a gate is shown does not have it; or what is shown is another's."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.adversary.lie import Lie, Telling
from tests.adversary.scene import DEFECT, GOOD, HONEST, POLICY, SUITE, Scene

_ONCE = (
    "import pathlib\nimport mylib\n\ndef test_double():\n"
    "    once = pathlib.Path({path!r})\n    first = not once.exists()\n    once.touch()\n"
    "    assert not first\n"
)
JUNIT = (
    '<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="0" skipped="0" '
    'tests="3" time="0.1">'
    + "".join(
        f'<testcase classname="t.{module}" name="{name}" time="0.01"/>'
        for module, name in (
            ("test_double", "test_double"),
            ("test_rest", "test_triple"),
            ("test_rest", "test_name"),
        )
    )
    + "</testsuite></testsuites>"
)


def open_folder(scene: Scene, name: str) -> Path:
    """Make a folder outside of the payload that every user may write to."""
    place = scene.folder / name
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    for folder in (scene.folder, *scene.folder.parents):
        if folder.owner() == scene.folder.owner() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o011)
    return place


def fails_once(scene: Scene) -> None:
    """A test that fails the first time; every user may leave the mark."""
    text = _ONCE.format(path=str(open_folder(scene, "once") / "mark"))
    scene.payload({**HONEST, "t/test_double.py": text})


def _rerun_both(scene: Scene) -> Sequence[str]:
    fails_once(scene)
    first = scene.run()
    return [first, scene.rerun(first)]


def _rerun_alone(scene: Scene) -> Sequence[str]:
    return _rerun_both(scene)[1:]


def _launched_again(scene: Scene) -> Sequence[str]:
    fails_once(scene)
    return [scene.run(), scene.run()][1:]


def _newest(scene: Scene) -> Sequence[str]:
    _launched_again(scene)
    return []


def _three_times(scene: Scene) -> Sequence[str]:
    """Fails, then passes twice: two green runs are named."""
    fails_once(scene)
    return [scene.run(), scene.run(), scene.run()][1:]


def _reruns_on_the_machine(scene: Scene) -> Sequence[str]:
    fails_once(scene)
    return [scene.run("--rerun-failed", "2")]


def _reruns_of_its_own(scene: Scene) -> Sequence[str]:
    """The suite runs what failed again by a plugin, or by a hook that does the same."""
    fails_once(scene)
    tests = (scene.folder / "payload" / "t" / "test_double.py").read_text()
    files = {**HONEST, "t/test_double.py": tests, "pytest.ini": "[pytest]\naddopts=--reruns 2\n"}
    scene.payload(files, pip=["pytest-rerunfailures"])
    return [scene.run()]


def _retried(plugin: str, more: str) -> Telling:
    """The suite runs what failed again by another plugin, named in its own settings."""

    def tell(scene: Scene) -> Sequence[str]:
        fails_once(scene)
        tests = (scene.folder / "payload" / "t" / "test_double.py").read_text()
        settings = f"[pytest]\naddopts={more}\n"
        files = {**HONEST, "t/test_double.py": tests, "pytest.ini": settings}
        scene.payload(files, pip=[plugin])
        return [scene.run()]

    return tell


def _environments_renamed(scene: Scene) -> Sequence[str]:
    """The same environments without their list: the cell has another name."""
    fails_once(scene)
    scene.run("--set", "here.environments=image")
    return [scene.run()]


def _other_wheel(scene: Scene) -> Sequence[str]:
    """The good wheel is tried under the number of the bad one."""
    honest = scene.run()
    scene.subject(GOOD)
    return [honest, scene.run()]


def _other_wheel_for_other_job(scene: Scene) -> Sequence[str]:
    """Each wheel passes one of two jobs."""
    two = SUITE.replace('"t"', '"t/test_rest.py"').replace('"suite"', '"rest"', 1)
    both = SUITE.replace('"t"', '"t/test_double.py"') + two
    scene.payload(HONEST, jobs=both)
    scene.subject(DEFECT)
    first = scene.run(jobs="  - {id: rest, on: all}")
    scene.subject(GOOD)
    return [first, scene.run(jobs="  - {id: suite, on: all}")]


def _other_payload(scene: Scene) -> Sequence[str]:
    """The failing payload's run, and a newer one whose payload has no such test."""
    scene.run()
    scene.payload({"t/test_rest.py": HONEST["t/test_rest.py"]})
    return [scene.run()]


def _touched_payload(scene: Scene) -> Sequence[str]:
    """It fails once; a byte of the payload is changed, and it passes."""
    fails_once(scene)
    scene.run()
    test = scene.folder / "payload" / "t" / "test_double.py"
    scene.payload({**HONEST, "t/test_double.py": f"# again\n{test.read_text()}"})
    return [scene.run()]


def _zipped_again(scene: Scene) -> Sequence[str]:
    """The wheel that failed, zipped anew with a comment; the payload has the test no more."""
    scene.run()
    with zipfile.ZipFile(scene.folder / scene.source, "a") as wheel:
        wheel.comment = b"again"
    scene.payload({"t/test_rest.py": HONEST["t/test_rest.py"]})
    return [scene.run()]


def _another_name(scene: Scene) -> Sequence[str]:
    """The wheel that failed, under another spelling of its name, and without the test."""
    scene.run()
    scene.name = "MyLib"
    scene.payload({"t/test_rest.py": HONEST["t/test_rest.py"]})
    return [scene.run()]


def _without_the_wheel(scene: Scene) -> Sequence[str]:
    """A fixed copy in the payload is the subject, under the name and version of the wheel."""
    scene.run()
    scene.source = ""
    scene.payload({**HONEST, "t/mylib.py": GOOD})
    return [scene.run()]


def _weakened(scene: Scene) -> Sequence[str]:
    """The test that failed is made to pass."""
    scene.run()
    weak = HONEST["t/test_double.py"].replace("== 4", "> 0")
    scene.payload({**HONEST, "t/test_double.py": weak})
    return [scene.run()]


def _skipped_then(scene: Scene) -> Sequence[str]:
    """The test that failed is expected to fail in the next payload."""
    scene.run()
    text = HONEST["t/test_double.py"].replace("def test", "@pytest.mark.xfail\ndef test")
    scene.payload({**HONEST, "t/test_double.py": "import pytest\n" + text})
    return [scene.run()]


def _without_the_job(scene: Scene) -> Sequence[str]:
    """The job that failed is not asked for again."""
    rest = SUITE.replace('"t"', '"t/test_rest.py"').replace('"suite"', '"rest"', 1)
    scene.payload(HONEST, jobs=SUITE + rest)
    scene.run()
    return [scene.run(jobs="  - {id: rest, on: all}")]


def _typed_off(scene: Scene) -> Sequence[str]:
    """A document that says that all passed."""
    (scene.folder / "results.xml").write_text(JUNIT)
    said = scene.seatrial(
        "ingest", "results.xml", "--platform", "here", "--subject", f"{scene.product}@1.0"
    )
    return [said.stdout.strip()]


def _flaky_elsewhere(scene: Scene) -> Sequence[str]:
    """Another CI's document, whose failing test passed when it was run again."""
    case = '<testcase classname="t.test_double" name="test_double" time="0.01"'
    again = f'{case}><flakyFailure message="4 != 5"/></testcase>'
    (scene.folder / "results.xml").write_text(JUNIT.replace(f"{case}/>", again))
    subject = f"{scene.product}@1.0"
    said = scene.seatrial("ingest", "results.xml", "--platform", "here", "--subject", subject)
    return [said.stdout.strip()]


def _added_to_a_run(scene: Scene) -> Sequence[str]:
    """A document beside the failing cell of a real run, under the platform's name."""
    run = scene.run()
    (scene.folder / "results.xml").write_text(JUNIT)
    subject = f"{scene.product}@1.0"
    scene.seatrial(
        "ingest", "results.xml", "--platform", "here", "--subject", subject, "--run", run
    )
    return [run]


def _cancelled(scene: Scene) -> Sequence[str]:
    """A run that is given up while it goes on."""
    late = "import time\n\ndef test_rest(): time.sleep(300)\n"
    scene.payload({"t/test_a.py": "def test_a(): pass\n", "t/test_late.py": late})
    run = scene.run("--timeout", "0.2")
    scene.seatrial("cancel", run)
    scene.seatrial("watch", run)
    return [run]


def _pruned(scene: Scene) -> Sequence[str]:
    """What failed is put away before the gate is asked."""
    fails_once(scene)
    scene.run()
    scene.seatrial("db", "prune", "--older-than", "0", "-y")
    return [scene.run()]


def _no_run(scene: Scene) -> Sequence[str]:
    shutil.rmtree(scene.folder / "payload" / "t")
    return []


LIES = (
    Lie("it fails, is run again, and both runs are shown", _rerun_both),
    Lie("it fails, is run again, and only the second is shown", _rerun_alone),
    Lie("it fails, is launched again, and only the second is shown", _launched_again),
    Lie("it fails, is launched again, and no run is named", _newest),
    Lie("it fails once and passes twice", _three_times),
    Lie("it fails, and passes when run again on the machine", _reruns_on_the_machine),
    Lie("it fails, and its suite runs it again", _reruns_of_its_own),
    Lie("the plugin flaky runs it again", _retried("flaky==3.8.1", "--force-flaky")),
    Lie("the plugin pytest-retry runs it again", _retried("pytest-retry==1.7.0", "--retries=2")),
    Lie("it fails, and passes without the list of environments", _environments_renamed),
    Lie("a fixed wheel of the same version is shown beside the first", _other_wheel),
    Lie("two wheels of one version, each for the job that it passes", _other_wheel_for_other_job),
    Lie("another payload without the test, for the same wheel", _other_payload),
    Lie("a document that was typed", _typed_off),
    Lie(
        "a document whose test failed, and passed when run again, where documents are believed",
        _flaky_elsewhere,
        spec={**POLICY, "evidence": {"attestation": "optional"}},
    ),
    Lie("a document in place of the failing cell", _added_to_a_run),
    Lie("a run that was cancelled in time", _cancelled),
    Lie("the failed run is pruned", _pruned),
    Lie("a gate that is shown nothing", _no_run),
    Lie("it fails once, and passes after a byte of the payload changed", _touched_payload),
    Lie("the wheel that failed, zipped again", _zipped_again),
    Lie("the wheel that failed under another spelling of its name", _another_name),
    Lie("the payload under the name of the wheel that failed", _without_the_wheel),
    Lie("a test that failed is weakened, for the same wheel", _weakened),
    Lie("a test that failed is expected to fail then, for the same wheel", _skipped_then),
    Lie("the job that failed is left out, for the same wheel", _without_the_job),
)

"""The machine is another than its name says, or the tests are not the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.adversary.lie import Lie, Telling, demo
from tests.adversary.scene import GOOD, HONEST, SUITE, Scene

LOCAL = ("local",)


def _spec(*names: str, **more: Any) -> Mapping[str, Any]:
    return {"platforms": [{"id": name} for name in names], **more}


def _named(name: str) -> Telling:
    """This computer under another's name, with a subject that a laptop finds sound."""

    def tell(scene: Scene) -> Sequence[str]:
        scene.subject(GOOD)
        return [scene.run(rows=f"  - {{id: {name}, provider: local}}\n")]

    return tell


def _two(first: str = "one", second: str = "two") -> str:
    return "".join(f"  - {{id: {name}, provider: local}}\n" for name in (first, second))


def _two_wheels(scene: Scene) -> Sequence[str]:
    scene.subject(GOOD)
    one = scene.run(rows="  - {id: one, provider: local}\n")
    scene.subject(GOOD + "SECOND = True\n")
    return [one, scene.run(rows="  - {id: two, provider: local}\n")]


def _two_payloads(scene: Scene) -> Sequence[str]:
    scene.subject(GOOD)
    one = scene.run(rows="  - {id: one, provider: local}\n")
    scene.payload({"t/test_rest.py": HONEST["t/test_rest.py"]})
    return [one, scene.run(rows="  - {id: two, provider: local}\n")]


def _other_tests(scene: Scene) -> Sequence[str]:
    """The payload leaves a test out wherever a file says that it was there before."""
    scene.subject(GOOD)
    mark = scene.folder / "mark"
    scene.payload(
        {
            **HONEST,
            "conftest.py": f"import pathlib\nmark = pathlib.Path({str(mark)!r})\n"
            "collect_ignore = ['t/test_double.py'] if mark.exists() else []\nmark.touch()\n",
        }
    )
    return [scene.run(rows=_two())]


def _left_out(scene: Scene) -> Sequence[str]:
    """The policy asks for two platforms, the matrix has one."""
    scene.subject(GOOD)
    return [scene.run(rows="  - {id: one, provider: local}\n")]


def _job_left_out(scene: Scene) -> Sequence[str]:
    """The suite that fails is not sent anywhere; the policy names it."""
    scene.payload(HONEST, jobs=SUITE + demo("hello", "print(1)"))
    return [scene.run(jobs="  - {id: hello, on: all}")]


def _optional(scene: Scene) -> Sequence[str]:
    row = "  - {id: two, provider: aws, accelerator: {vendor: amd, name: MI300X}, optional: true}\n"
    scene.subject(GOOD)
    limits = "limits: {max_usd: 1}\n"
    return [scene.run(rows="  - {id: one, provider: local}\n" + row, more=limits)]


def _informing(scene: Scene) -> Sequence[str]:
    """A policy in which nothing blocks."""
    return [scene.run()]


LIES = (
    Lie("a laptop that is called a TPU", _named("gcp-tpu-v5e"), _spec("gcp-tpu-v5e"), places=LOCAL),
    Lie("a laptop that is called an A10G", _named("aws-a10g"), _spec("aws-a10g"), places=LOCAL),
    Lie(
        "a laptop whose name has an h100 in it",
        _named("rack-h100"),
        _spec("rack-h100"),
        places=LOCAL,
    ),
    Lie(
        "another laptop of Google's", _named("gcp-somewhere"), _spec("gcp-somewhere"), places=LOCAL
    ),
    Lie(
        "two wheels of one version on two platforms", _two_wheels, _spec("one", "two"), places=LOCAL
    ),
    Lie("two payloads on two platforms", _two_payloads, _spec("one", "two"), places=LOCAL),
    Lie("fewer tests on the second platform", _other_tests, _spec("one", "two"), places=LOCAL),
    Lie("a platform that nobody asked for", _left_out, _spec("one", "two"), places=LOCAL),
    Lie("a platform that is optional and absent", _optional, _spec("one", "two"), places=LOCAL),
    Lie(
        "the failing job is sent nowhere",
        _job_left_out,
        _spec("here", jobs=[{"id": "suite"}, {"id": "hello"}]),
    ),
    Lie(
        "a policy in which no platform blocks",
        _informing,
        {"platforms": [{"id": "here", "level": "advisory"}]},
        places=LOCAL,
    ),
)

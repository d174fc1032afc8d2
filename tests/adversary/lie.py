"""What a lie is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.adversary.scene import HONEST, POLICY, SUITE, Scene

Telling = Callable[[Scene], Sequence[str]]
"""Arranges everything; returns the runs that a gate is to look at."""


@dataclass(frozen=True)
class Lie:
    """One way to get a PASS for a subject that has a defect."""

    name: str
    tell: Telling
    spec: Mapping[str, Any] = field(default_factory=lambda: POLICY)
    """What its policy says, where the policy is part of the lie."""
    inherent: str = ""
    """Which kind of INHERENT it is, if it is one."""
    inherent_at: Sequence[str] = ("local", "ssh")
    """Where: elsewhere it has to be refused."""
    shows: str = ""
    """What the verdict of an inherent lie has to name, such as a file."""
    places: Sequence[str] = ("local", "ssh")


def one_run(
    files: Mapping[str, str],
    *,
    jobs: str = SUITE,
    manifest: str = "",
    after_green: bool = False,
    only: bool = False,
) -> Telling:
    """A lie that the payload tells alone.

    `files` go over the honest tests (`only`: instead of them); with `after_green` a release that
    passed with the honest ones goes before.
    """

    def tell(scene: Scene) -> Sequence[str]:
        if after_green:
            scene.green()
        scene.payload(files if only else {**HONEST, **files}, jobs=jobs, manifest=manifest)
        return [scene.run()]

    return tell


def suite(*arguments: str, **env: str) -> str:
    """The suite's job with arguments for pytest and variables."""
    words = ", ".join(f'"{word}"' for word in ("t", *arguments))
    variables = ", ".join(f'{name} = "{value}"' for name, value in env.items())
    return f'[[job]]\nid = "suite"\nkind = "suite"\npytest = [{words}]\nenv = {{{variables}}}\n'


def demo(name: str, code: str, kind: str = "demo") -> str:
    """A job that is a program."""
    return (
        f'[[job]]\nid = "{name}"\nkind = "{kind}"\n'
        f"command = [\"{{python}}\", \"-c\", '''\n{code}\n''']\n"
    )

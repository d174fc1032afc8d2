"""Which build of its subject a run tested: two builds may have one name and one version."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.cell import Run, RunSpec


@dataclass(frozen=True, slots=True)
class SubjectBuild:
    """The subject's name and version, and its wheel, as the run was launched with it."""

    name: str = ""
    version: str = ""
    wheel: str = ""
    """sha256 of the file; empty where no wheel was given: the payload or an index had it."""
    contents: str = ""
    """Digest of what it holds: the same where a wheel was only zipped again."""

    @classmethod
    def of(cls, run: Run, spec: RunSpec) -> SubjectBuild:
        """What a run was launched with."""
        wheel = spec.subject_digest or ""
        return cls(run.subject_name, run.subject_version, wheel, spec.subject_contents)


def build_difference(before: SubjectBuild, after: SubjectBuild) -> str:
    """How two builds of one name and version differ; empty where nothing is known to differ.

    A wheel that was only zipped again does not differ.
    """
    if (before.name, before.version) != (after.name, after.version) or before.wheel == after.wheel:
        return ""
    if not (before.wheel and after.wheel):
        return "The subject differs: only one of the runs had a wheel of it."
    if not (before.contents and after.contents):
        return (
            "The subject may differ although its version does not: its wheels are different files."
        )
    if before.contents == after.contents:
        return ""
    return "The subject differs although its version does not: its wheels hold different files."

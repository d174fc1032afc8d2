"""Build of a run's subject: two builds may have one name and version."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from orchestrator.domain.cell import Run, RunSpec


@dataclass(frozen=True, slots=True)
class SubjectBuild:
    """Name, version and wheel of the subject that a run was launched with."""

    name: str = ""
    version: str = ""
    wheel: str = ""
    """sha256 of the file; empty without a wheel: the payload or an index contains the subject."""
    contents: str = ""
    """Digest of its content, equal for wheels that were only zipped again."""

    @classmethod
    def of(cls, run: Run, spec: RunSpec) -> SubjectBuild:
        """Return the build that a run was launched with."""
        wheel = spec.subject_digest or ""
        return cls(run.subject_name, run.subject_version, wheel, spec.subject_contents)


def tested_build(run: Run, spec: RunSpec) -> str:
    """Return a digest of what a run tested: the payload and the subject.

    The payload and a subject's wheel are known by their contents. Where neither is known, as of
    results that were ingested, the commit stands for them, and else the version alone.
    """
    wheel = spec.subject_contents or spec.subject_digest or ""
    known = (run.subject_name, run.subject_version, run.payload_digest, wheel)
    commit = "" if run.payload_digest else run.commit.sha
    return hashlib.sha256("\0".join((*known, commit)).encode()).hexdigest()


def build_difference(before: SubjectBuild, after: SubjectBuild) -> str:
    """Describe how two builds of one name and version differ; empty where no difference is known.

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

"""The jobs that a platform's artifacts contain, and the job of each test."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import cast, get_args

from orchestrator.domain.accelerators import NAMES
from orchestrator.domain.assembly.results_pass import ArtifactSummary, JobSection, module_of
from orchestrator.domain.document_problems import Problem, nearest
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.manifest import IDENTIFIER, Job, JobKind

MODULES_LIMIT = 12
"""Maximum number of test modules that become suites of their own."""
_KINDS: tuple[str, ...] = get_args(JobKind)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that was found in artifacts, with its sections."""

    job: Job
    """The job as an entry of a manifest, without a command."""
    sections: list[JobSection] = field(default_factory=list)


class JobGrouping:
    """Returns the group of a test: a named job, a suite of `ingest.yaml`, or its module."""

    def __init__(self, notes: IngestNotes) -> None:
        self._notes = notes

    def __call__(self, account: ArtifactSummary, section: JobSection, nodeid: str) -> str:
        """Return the group of a test; it begins with a colon unless it is a module."""
        whole = self.of_section(account, section)
        if whole:
            return whole
        for suite in self._notes.suites:
            if _fits(suite.match, nodeid):
                return f":suite {suite.id}"
        return module_of(nodeid).lstrip(":")

    def of_section(self, account: ArtifactSummary, section: JobSection) -> str:
        """Return the group of a whole section; empty if its tests have several groups."""
        said, name = section.parsed_job, account.foreign.name
        for job, noted in self._notes.jobs.items():
            if noted.file and names_artifact(noted.file, name):
                return f":noted {job}"
        if said is not None and said.id:
            return f":said {said.id}"
        if said is not None and (said.kind != "suite" or said.title):
            return own_group(account, section)
        return ""


class JobFinder:
    """Finds the jobs in parsed artifacts."""

    def __init__(
        self,
        accounts: list[ArtifactSummary],
        notes: IngestNotes,
        taken: Mapping[str, str],
        grouping: JobGrouping,
        *,
        same: Sequence[int],
    ) -> None:
        """Prepare the search.

        Args:
            accounts: The summaries of all artifacts.
            notes: The person's notes about the artifacts.
            taken: The kinds of the jobs that the run already has, by id.
            grouping: Returns the group of a test.
            same: For each artifact, the number of the first one with the same tests.
        """
        self._accounts = accounts
        self._notes = notes
        self._taken = taken
        self._group_of = grouping
        self._same = same
        self._jobs: dict[str, FoundJob] = {}
        """The found jobs by group."""
        groups = (group for a in accounts for s in a.sections for group in s.groups)
        modules = {group for group in groups if not group.startswith(":")}
        self._modules = modules
        self._by_module = len(modules) <= MODULES_LIMIT
        self._suite_ids = suite_ids(modules) if self._by_module else {}

    def plan(self) -> list[FoundJob]:
        """Return every job, by kind.

        Within a kind, jobs of the notes come first, in their order; then those of the
        artifacts.
        """
        for account in self._accounts:
            for section in account.sections:
                for group in () if section.is_empty else self._groups(account, section):
                    self._job(account, section, group).sections.append(section)
        listed = [suite.id for suite in self._notes.suites] + list(self._notes.jobs)
        order = {job: number for number, job in enumerate(listed)}
        return sorted(
            self._jobs.values(),
            key=lambda one: (_KINDS.index(one.job.kind), order.get(one.job.id, len(order))),
        )

    def idle(self, planned: Sequence[FoundJob]) -> Iterator[Problem]:
        """Yield a problem for each suite and job of the notes that no artifact contains."""
        ids = [one.job.id for one in planned]
        for number, suite in enumerate(self._notes.suites):
            if f":suite {suite.id}" not in self._jobs:
                near = nearest(suite.match, self._modules)
                yield Problem(("suites", number, "match"), f"fits no test{near}")
        for job in self._notes.jobs:
            if job not in ids:
                yield Problem(("jobs", job), f"no artifact tells of this job{nearest(job, ids)}")

    def job_of(self, source: int, number: int, nodeid: str) -> FoundJob:
        """Return the job of a test; without a node id, the job of the section's first test."""
        account = self._accounts[source]
        section = account.sections[number]
        nodeid = nodeid or section.first
        group = self._group_of(account, section, nodeid) if nodeid else ""
        return self._jobs[self._final(account, section, group)]

    def jobs_of(self, account: ArtifactSummary) -> list[FoundJob]:
        """Return every job that has a section in the artifact."""
        sections = list(map(id, account.sections))
        return [job for job in self._jobs.values() if any(id(s) in sections for s in job.sections)]

    def _groups(self, account: ArtifactSummary, section: JobSection) -> Iterable[str]:
        found = section.groups or [""]
        return dict.fromkeys(self._final(account, section, group) for group in found)

    def _final(self, account: ArtifactSummary, section: JobSection, group: str) -> str:
        """Return the group that becomes a job.

        A group that begins with a colon becomes a job itself, and so does a module if there are at
        most `MODULES_LIMIT` modules. Otherwise the whole section becomes one job.
        """
        if group.startswith(":") or (group and self._by_module):
            return group
        whole = self._group_of.of_section(account, section)
        first = self._accounts[self._same[account.number]]
        if whole or first is account:
            return whole or own_group(account, section)
        return own_group(first, first.sections[0])

    def _job(self, account: ArtifactSummary, section: JobSection, group: str) -> FoundJob:
        known = self._jobs.get(group)
        if known is None:
            known = self._jobs[group] = self._named(account, section, group)
        return known

    def _named(self, account: ArtifactSummary, section: JobSection, group: str) -> FoundJob:
        what, _, name = group.removeprefix(":").partition(" ")
        if not group.startswith(":"):
            wanted = self._suite_ids[group]
            if not self._is_free(wanted, "suite"):
                wanted = module_id(group, parents=1)
            noted = self._notes.jobs.get(wanted)
            return self._made(wanted, "suite", noted.title if noted else "")
        if what == "suite":
            suite = next(suite for suite in self._notes.suites if suite.id == name)
            return self._made(suite.id, "suite", suite.title)
        kind, said = _kind_of(section), section.parsed_job
        title = said.title if said else ""
        if what == "own":
            name = artifact_id(account.foreign.name)
        elif not IDENTIFIER.fullmatch(name):
            name = artifact_id(name)
        noted = self._notes.jobs.get(name)
        if noted is not None:
            kind, title = noted.kind or kind, noted.title or title
        return self._made(name, kind, title)

    def _made(self, wanted: str, kind: JobKind, title: str) -> FoundJob:
        kinds = {**self._taken, **{one.job.id: one.job.kind for one in self._jobs.values()}}
        if kinds.get(wanted, kind) != kind:
            wanted = f"{wanted[:50]}-{kind}"
        name = unused(wanted, lambda one: self._is_free(one, kind))
        return FoundJob(Job(id=name, kind=kind, title=title or title_of(name)))

    def _is_free(self, name: str, kind: str) -> bool:
        if self._taken.get(name, kind) != kind:
            return False
        return all(one.job.id != name for one in self._jobs.values())


def names_artifact(pattern: str, name: str) -> bool:
    """Whether a file name or pattern in the notes refers to the artifact."""
    return pattern in (name, PurePosixPath(name).name) or fnmatchcase(name, pattern)


def own_group(account: ArtifactSummary, section: JobSection) -> str:
    """Return the group of a section without a name."""
    number = next(n for n, one in enumerate(account.sections) if one is section)
    return f":own {account.number}.{number}"


def _fits(match: str, nodeid: str) -> bool:
    plain = nodeid == match or nodeid.startswith((f"{match}::", f"{match.rstrip('/')}/"))
    return plain or fnmatchcase(nodeid, match) or fnmatchcase(module_of(nodeid), match)


def _kind_of(section: JobSection) -> JobKind:
    said = section.parsed_job.kind if section.parsed_job else ""
    if said in _KINDS:
        return cast("JobKind", said)
    if section.is_suite:
        return "suite"
    return "benchmark" if section.metrics and not section.checks else "demo"


ID_LIMIT = 64
_ACRONYMS = {
    word.lower(): word
    for word in (
        "AMD", "AMP", "API", "BERT", "CLI", "CPU", "CUDA", "DDP", "FP8", "FP16", "FP32", "FSDP",
        "FlashAttention", "FlexAttention", "GCP", "AWS", "GPT", "GPU", "HIP", "INT8", "Intel",
        "JIT", "KV", "LLM", "MLP", "MoE", "NCCL", "NVIDIA", "ONNX", "PyTorch", "ROCm", "SDPA",
        "TPU", "XLA", "XPU", "BF16", "TF32", "E2E", "IO", *NAMES.values(),
    )
}  # fmt: skip
_PAIRS = {
    "Flex Attention": "FlexAttention",
    "Flash Attention": "FlashAttention",
    "Py Torch": "PyTorch",
}
_SUFFIXES = re.compile(r"(?:\.(?:gz|txt|log|out|jsonl?|xml|ya?ml|csv|md))+$", re.IGNORECASE)
_STRANGE = re.compile(r"[^A-Za-z0-9]+")


def artifact_id(name: str) -> str:
    """Return the id of a job that has the name of its artifact."""
    return _identifier(_SUFFIXES.sub("", PurePosixPath(name).name))


def module_id(module: str, *, parents: int = 0) -> str:
    """Return the id of a suite from the name of its module and `parents` of its folders."""
    parts = list(PurePosixPath(module).parts)
    stem = re.sub(r"\.(?:py|md|rst|txt|ipynb)$", "", parts[-1] if parts else module)
    stem = re.sub(r"^tests?_|_tests?$", "", stem) or stem
    above = parts[-1 - parents : -1] if parents else []
    return _identifier("-".join([*above, stem]))


def suite_ids(modules: Collection[str]) -> dict[str, str]:
    """Return the ids of suites by their modules, with as many folders as tell them apart.

    An id depends on the set of modules, never on the order of their tests in an artifact.
    """
    ids: dict[str, str] = {}
    for module in sorted(modules):
        others = [one for one in modules if one != module]
        depths = range(max(len(PurePosixPath(module).parts), 1))
        names = (
            name
            for depth in depths
            if (name := module_id(module, parents=depth)) not in ids.values()
            and all(module_id(one, parents=depth) != name for one in others)
        )
        deepest = module_id(module, parents=depths[-1])
        ids[module] = next(names, "") or unused(deepest, lambda one: one not in ids.values())
    return ids


def title_of(job: str) -> str:
    """Return a title for a job id: ``FP8 Native`` for ``fp8-native``."""
    words = [_ACRONYMS.get(word.lower(), word.capitalize()) for word in re.split("[-_]+", job)]
    title = " ".join(word for word in words if word)
    for apart, together in _PAIRS.items():
        title = title.replace(apart, together)
    return title or job


def unused(wanted: str, is_free: Callable[[str], bool]) -> str:
    """Return the id, with a number if it is not free."""
    name, number = wanted, 1
    while not is_free(name):
        number += 1
        end = f"-{number}"
        name = wanted[: ID_LIMIT - len(end)] + end
    return name


def _identifier(text: str) -> str:
    found = _STRANGE.sub("-", text).strip("-").lower()[:ID_LIMIT].rstrip("-")
    return found or "unnamed"

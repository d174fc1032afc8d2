from __future__ import annotations

from decimal import Decimal

import pytest

from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import (
    Accelerator,
    Baseline,
    ExpectedHardware,
    Host,
    JobSelection,
    Limits,
    Matrix,
    Metadata,
    Platform,
    Subject,
)
from orchestrator.domain.matrix_checks import check_matrix
from tests.unit.domain.builders import TRAITS, manifest, matrix

RENTED = Platform(id="x", provider="aws")
HOST = Host(address="h", user="u", key_file="k", host_key="ssh-ed25519 A")


def here(**changes: object) -> Platform:
    return Platform(**{"id": "here", "provider": "local", **changes})  # type: ignore[arg-type]


def limited(**changes: object) -> Matrix:
    return matrix(limits=Limits(**changes))  # type: ignore[arg-type]


CASES = [
    (matrix(platforms=()), ("platforms",), "a matrix needs at least one platform"),
    (matrix(platforms=(here(), here())), ("platforms", 0, "id"), "'here' is the id of 2 platforms"),
    (matrix(platforms=(here(id="a.b"),)), ("platforms", 0, "id"), "must be letters, digits"),
    (matrix(platforms=(here(id=""),)), ("platforms", 0, "id"), "must be letters, digits"),
    (matrix(platforms=(here(id="a\n"),)), ("platforms", 0, "id"), "must be letters, digits"),
    (matrix(platforms=(here(provider="awss"),)), ("platforms", 0, "provider"), "mean 'aws'?"),
    (matrix(platforms=(here(disk_gb=5),)), ("platforms", 0, "disk_gb"), "has no use for 'disk_gb'"),
    (matrix(platforms=(here(provider="static"),)), ("platforms", 0), "'static' needs 'hosts'"),
    (matrix(platforms=(here(provider="static", hosts=()),)), ("platforms", 0), "needs 'hosts'"),
    (matrix(platforms=(here(expect=ExpectedHardware()),)),
     ("platforms", 0, "expect"), "names nothing"),
    (matrix(platforms=(here(expect=ExpectedHardware(accelerator="Any")),)),
     ("platforms", 0, "expect", "accelerator"), "in a matrix leave out what is not asked for"),
    (matrix(platforms=(here(expect=ExpectedHardware(provider="gcp")),)),
     ("platforms", 0, "expect", "provider"), "expect.provider is 'gcp', but the platform's"),
    (matrix(platforms=(here(provider="aws", locations=("us-east-1", "atlantis")),)),
     ("platforms", 0, "locations", 1), "no region"),
    (matrix(platforms=(here(provider="aws", connect="iap"),)),
     ("platforms", 0, "connect"), "provider 'aws' has no 'iap'; it has private, public"),
    (matrix(platforms=(here(provider="aws", bastion=HOST),)),
     ("platforms", 0, "bastion"), "write `connect: private` beside it"),
    (matrix(platforms=(here(provider="aws", connect="private", bastion=HOST),)),
     ("platforms", 0, "bastion", "host_key"), "not a public host key"),
    (matrix(platforms=(here(provider="aws", market=("spot", "on-demand", "spot")),)),
     ("platforms", 0, "market", 2), "'spot' occurs twice"),
    (matrix(platforms=(here(accelerator=Accelerator(vendor="nvidia", name="L4", count=0)),)),
     ("platforms", 0, "accelerator", "count"), "must be at least 1"),
    (matrix(metadata=Metadata(name=" ")), ("metadata", "name"), "must not be empty"),
    (limited(max_minutes=43_201), ("limits", "max_minutes"), "at most 43200, which is 30 days"),
    (limited(max_shipped_gb=0), ("limits", "max_shipped_gb"), "must be more than 0"),
    (matrix(platforms=(here(bastion=HOST),)), ("platforms", 0, "bastion"), "no use for 'bastion'"),
    (matrix(environments=()), ("environments",), "name at least one environment"),
    (matrix(environments=("imag",)), ("environments", 0), "no environment 'imag'; did you mean"),
    (matrix(environments=("image", "image")), ("environments", 1), "'image' occurs twice"),
    (matrix(platforms=(here(environments=("tpu",)),)), ("platforms", 0, "environments", 0),
     "the payload has no environment 'tpu'"),
    (matrix(jobs=()), ("jobs",), "a matrix needs at least one job"),
    (matrix(jobs=(JobSelection(),)), ("jobs", 0), "give either `id` or `select`"),
    (matrix(jobs=(JobSelection(id="a", select="b"),)), ("jobs", 0), "give either"),
    (matrix(jobs=(JobSelection(id="c"),)), ("jobs", 0, "id"), "the payload has no job 'c'"),
    (matrix(jobs=(JobSelection(select="z*"),)), ("jobs", 0, "select"), "no job that matches 'z*'"),
    (matrix(jobs=(JobSelection(id="a", on=()),)), ("jobs", 0, "on"), "name at least one platform"),
    (matrix(jobs=(JobSelection(id="a"), JobSelection(id="b", on=("her",)))),
     ("jobs", 1, "on", 0), "there is no platform 'her'; did you mean 'here'?"),
    (matrix(jobs=(JobSelection(id="a", idle_timeout_minutes=0),)),
     ("jobs", 0, "idle_timeout_minutes"), "more than 0"),
    (matrix(jobs=(JobSelection(id="a", idle_timeout_minutes=5),
                  JobSelection(select="*", idle_timeout_minutes=9))),
     ("jobs",), "job 'a' has idle_timeout_minutes 5 and 9 on 'here': say one of them"),
    (matrix(platforms=(here(), here(id="idle")), jobs=(JobSelection(id="a", on=("here",)),)),
     ("platforms", 1), "no job is sent to platform 'idle'"),
    (matrix(platforms=(RENTED,)), ("limits",), "max_usd is required, because x costs money"),
    (matrix(platforms=(Platform(id="x", provider="aws", market=()),)),
     ("platforms", 0, "market"), "the list is empty: name something, or leave the key out"),
    (limited(max_usd=Decimal(0)), ("limits", "max_usd"), "more than 0"),
    (limited(max_usd=Decimal("1e-400")), ("limits", "max_usd"), "at least 0.0001"),
    (limited(max_minutes=0), ("limits", "max_minutes"), "more than 0"),
    (limited(max_parallel=0), ("limits", "max_parallel"), "at least 1"),
    (limited(infra_retries=-1), ("limits", "infra_retries"), "must be from 0 to 100"),
    (matrix(subject=Subject(name="s", version="1", wheel="w", package="s==1")), ("subject",),
     "one source at most, not wheel and package"),
    (matrix(subject=Subject(name="s", version="1", package="s>=1")), ("subject", "package"),
     "must be pinned: s==1"),
    (matrix(subject=Subject(name=" ", version="1")), ("subject", "name"), "must not be empty"),
    (matrix(subject=Subject(name="s", version="")), ("subject", "version"), "must not be empty"),
    (matrix(secrets={"T": {}}), ("secrets", "T"), "say where it comes from"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "path", "words"), CASES)
def test_an_impossible_matrix_is_refused(
    made: Matrix, path: tuple[object, ...], words: str
) -> None:
    problems = check_matrix(made, manifest(), TRAITS)
    assert [p for p in problems if p.path == path and words in p.message], problems


@pytest.mark.parametrize(
    "made",
    [
        matrix(),
        matrix(platforms=(RENTED,), limits=Limits(max_usd=Decimal(1))),
        matrix(platforms=(here(provider="static", hosts=(HOST,)),)),
        matrix(platforms=(here(optional=True, options={"a": "b"}),)),
        matrix(secrets={"T": {"from": "env"}}),
    ],
)
def test_a_possible_matrix_has_no_problems(made: Matrix) -> None:
    assert check_matrix(made, manifest(), TRAITS) == ()


@pytest.mark.parametrize(
    ("job", "refused"),
    [
        (Job(id="a", kind="benchmark", command=("x",), metrics=("output",)), True),
        (Job(id="a", kind="benchmark", command=("x",)), False),
        (Job(id="a", kind="demo", command=("x",), metrics=("output",)), False),
        (Job(id="b", kind="benchmark", command=("x",), metrics=("output",)), False),
    ],
)
def test_a_benchmark_that_is_paired_has_no_figures_in_files(job: Job, refused: bool) -> None:
    others = tuple(one for one in manifest().job if one.id != job.id)
    payload = manifest(job=(job, *others))
    made = matrix(jobs=(JobSelection(id="a"),), baseline=Baseline(package="s==1"))
    wanted = "benchmark 'a': `metrics` is not read in paired benchmarks"
    found = [one for one in check_matrix(made, payload, TRAITS) if wanted in one.message]
    assert [one.path for one in found] == [("baseline",)] * refused
    assert not [
        one
        for one in check_matrix(matrix(jobs=(JobSelection(id="a"),)), payload, TRAITS)
        if wanted in one.message
    ]


def test_a_secret_is_needed_only_where_its_job_is_selected() -> None:
    jobs = (Job(id="a", kind="demo", command=("x",), secrets=("T",)),)
    jobs += (Job(id="b", kind="demo", command=("x",)),)
    payload = manifest(job=jobs)
    problems = check_matrix(matrix(), payload, TRAITS)
    assert [str(p) for p in problems] == ["secrets: job 'a' needs the secret 'T'"]
    assert not check_matrix(matrix(jobs=(JobSelection(id="b"),)), payload, TRAITS)

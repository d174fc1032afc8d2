from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.manifest import Job, Manifest, check_manifest
from orchestrator.domain.matrix import (
    Accelerator,
    JobSelection,
    Matrix,
    Platform,
    Subject,
    expand,
    jobs_left_out,
    selects,
    why_unfit,
)
from orchestrator.domain.matrix_checks import check_matrix
from tests.unit.domain.builders import TRAITS, manifest, matrix

NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@st.composite
def documents(draw: st.DrawFn) -> tuple[Matrix, Manifest]:
    jobs, environments = draw(NAMES), draw(NAMES)
    platform_ids = draw(NAMES)
    some = st.lists(st.sampled_from(environments), min_size=1, unique=True).map(tuple)
    platforms = tuple(
        Platform(id=f"p{each}", provider="local", environments=draw(st.none() | some))
        for each in platform_ids
    )
    places = st.lists(st.sampled_from([p.id for p in platforms]), min_size=1).map(tuple)
    chosen = st.sampled_from(jobs).map(lambda j: {"id": j}) | st.just({"select": "*"})
    selections = [
        JobSelection(**draw(chosen), on=draw(places | st.just("all")))
        for _ in range(draw(st.integers(1, 4)))
    ]
    selections.append(JobSelection(id=draw(st.sampled_from(jobs)), on="all"))
    made = matrix(platforms=platforms, jobs=tuple(selections), environments=draw(some))
    return made, manifest(*jobs, environments=tuple(environments))


@given(documents())
def test_expansion_is_platforms_times_environments_in_order(case: tuple[Matrix, Manifest]) -> None:
    made, payload = case
    assert check_matrix(made, payload, TRAITS) == ()
    cells = expand(made, payload)
    expected = [(p.id, e) for p in made.platforms for e in (p.environments or made.environments)]
    assert [(cell.platform.id, cell.environment) for cell in cells] == expected
    assert len({cell.id for cell in cells}) == len(cells)


@given(documents())
def test_a_cell_has_exactly_the_jobs_sent_to_its_platform_in_payload_order(
    case: tuple[Matrix, Manifest],
) -> None:
    made, payload = case
    for cell in expand(made, payload):
        wanted = [
            job.id
            for job in payload.job
            if any(
                (s.id == job.id or s.select == "*") and (s.on == "all" or cell.platform.id in s.on)
                for s in made.jobs
            )
        ]
        assert list(cell.jobs) == wanted
        assert cell.jobs


def test_a_cell_is_named_after_its_environment_only_where_there_are_several() -> None:
    platforms = (
        Platform(id="one", provider="local"),
        Platform(id="two", provider="local", environments=("image", "new")),
    )
    cells = expand(matrix(platforms=platforms), manifest(environments=("new",)))
    assert [cell.id for cell in cells] == ["one", "two.image", "two.new"]


def test_patterns_are_case_sensitive_and_ids_are_not_patterns() -> None:
    assert selects(JobSelection(select="moe-*"), "moe-demo")
    assert not selects(JobSelection(select="MOE-*"), "moe-demo")
    assert not selects(JobSelection(id="moe-*"), "moe-demo")
    assert not selects(JobSelection(), "moe-demo")


def test_a_subject_knows_its_source() -> None:
    assert Subject(name="s", version="1").source == "payload"
    assert Subject(name="s", version="1", wheel="x.whl").source == "wheel"
    assert Subject(name="s", version="1", package="s==1").source == "package"


FP8 = Job(id="fp8", kind="demo", command=("true",), compute_capability="8.9")
A10G = Platform(
    id="a10g",
    provider="aws",
    accelerator=Accelerator(vendor="nvidia", name="A10G", compute_capability="8.6"),
)
L4 = Platform(id="l4", provider="aws", instance_type="g6.xlarge")
EITHER = Platform(id="either", provider="aws", instance_type=("g5.xlarge", "g6.xlarge"))


def test_a_job_is_not_sent_to_a_gpu_that_is_known_to_be_too_old_for_it() -> None:
    """float8 kernels need units that an A10G does not have."""
    payload = manifest(job=(FP8, *manifest("other").job))
    unknown = (Platform(id="here", provider="local"), replace(L4, id="new", instance_type="g9.x"))
    made = matrix(platforms=(A10G, L4, EITHER, *unknown))
    assert {cell.id: cell.jobs for cell in expand(made, payload)} == {
        "a10g": ("other",),
        "l4": ("fp8", "other"),
        "either": ("fp8", "other"),
        "here": ("fp8", "other"),
        "new": ("fp8", "other"),
    }
    assert list(jobs_left_out(made, payload)) == [
        "job fp8 is not sent to a10g: it needs compute capability 8.9, and the platform has 8.6",
    ]


def test_a_compute_capability_asks_for_an_nvidia_gpu() -> None:
    assert (FP8.gpus_needed, replace(FP8, gpus=2).gpus_needed) == (1, 2)
    assert [job.gpus_needed for job in manifest("other").job] == [0]
    amd = Platform(
        id="amd", provider="static", accelerator=Accelerator(vendor="amd", name="MI300X")
    )
    tpu = Platform(id="tpu", provider="tpu", accelerator_type="v5litepod-1")
    for platform in (amd, tpu):
        assert why_unfit(FP8, platform) == "it needs an NVIDIA GPU of compute capability 8.9"


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ("a", []),
        ("a b", ["1 job of the payload is selected on no platform: b"]),
        ("a b c", ["2 jobs of the payload are selected on no platform: b, c"]),
        (
            "a b c d e f g",
            ["6 jobs of the payload are selected on no platform: b, c, d, e, f and 1 more"],
        ),
    ],
)
def test_jobs_that_no_platform_selects_are_named(jobs: str, said: list[str]) -> None:
    made = matrix(jobs=(JobSelection(id="a"),))
    assert list(jobs_left_out(made, manifest(*jobs.split()))) == said


def test_capabilities_are_numbers_and_not_text() -> None:
    newer = replace(FP8, compute_capability="10.0")
    assert "has 8.9" in why_unfit(newer, L4)
    assert (
        why_unfit(
            FP8,
            replace(
                L4, accelerator=Accelerator(vendor="nvidia", name="B200", compute_capability="10.0")
            ),
        )
        == ""
    )


def test_a_job_that_is_named_for_a_gpu_that_cannot_run_it_is_refused() -> None:
    payload = manifest(job=(FP8, *manifest("other").job))
    named = (JobSelection(select="*"), JobSelection(id="fp8", on=("l4", "a10g")))
    made = matrix(platforms=(L4, A10G), jobs=named)
    [problem] = [p for p in check_matrix(made, payload, TRAITS) if p.path[0] == "jobs"]
    assert problem.path == ("jobs", 1, "on", 1)
    assert problem.message == (
        "job 'fp8' cannot run on 'a10g': it needs compute capability 8.9, and the platform has 8.6"
    )


def test_a_compute_capability_is_written_as_nvidia_does() -> None:
    wrong = manifest(job=(replace(FP8, compute_capability="sm_89"),))
    assert [p.path for p in check_manifest(wrong)] == [("job", 0, "compute_capability")]

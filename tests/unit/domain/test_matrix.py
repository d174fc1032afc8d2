from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import JobSelection, Matrix, Platform, Subject, expand, selects
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

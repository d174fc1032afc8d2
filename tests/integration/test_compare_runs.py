"""Two stored runs set against each other: over REST, and by the command."""

from __future__ import annotations

import hashlib
import json

import pytest

from orchestrator.application.history_of_test import decide_alias, suggest_aliases
from orchestrator.domain.node_ids import AliasState
from tests.integration.api_context import MATRIX, Desk
from tests.integration.dashboard.desk import signed_in
from tests.integration.wheel_making import wheel_bytes
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request
from tests.unit.cli.in_process import ID, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures


@pytest.fixture(scope="module")
def runs(shared_api: Desk) -> tuple[str, str]:
    """In the first one `b` fails; in the second one it passes, and `c` fails."""
    made = [
        finished(shared_api, {"a": "passed", "b": "failed"}),
        finished(shared_api, {"a": "passed", "b": "passed", "c": "failed"}),
    ]
    return made[0], made[1]


def finished(api: Desk, outcomes: dict[str, str]) -> str:
    run = str(api.launch("-".join(outcomes))["id"])
    agent = api.begin(run, "here")
    agent.send(agent.manifest(*outcomes), *(agent.test(n, o) for n, o in outcomes.items()))
    api.begin(run, "there")
    api.finish(run, "here", "there")
    return run


def test_what_changed_is_told(shared_api: Desk, runs: tuple[str, str]) -> None:
    told = shared_api.client.get(
        "/api/v1/compare", params={"base": runs[0], "head": "latest"}
    ).json()
    assert (told["base"]["run_id"], told["head"]["run_id"]) == runs
    totals = {name: count for name, count in told["totals"] if count}
    assert totals == {"new_failure": 1, "fixed": 1}
    assert told["unchanged"] == 1


def test_the_other_way_round_it_is_the_other_way_round(
    shared_api: Desk, runs: tuple[str, str]
) -> None:
    told = shared_api.client.get(
        "/api/v1/compare", params={"base": runs[1], "head": runs[0]}
    ).json()
    assert {name: n for name, n in told["totals"] if n} == {"new_failure": 1, "gone": 1}


def test_a_confirmed_name_makes_two_tests_one(api: Desk) -> None:
    made = [finished(api, {f"t.py::{name}::test_x": "passed"}) for name in "AB"]
    query = {"base": made[0], "head": made[1]}
    told = api.client.get("/api/v1/compare", params=query).json()
    assert {name: n for name, n in told["totals"] if n} == {"new": 1, "gone": 1}
    assert told["pairs"][0]["tests"]["maybe"] == [["t.py::A::test_x", "t.py::B::test_x", "moved"]]
    (alias,) = suggest_aliases(api.context, *made).suggestions
    decide_alias(api.context, alias.id, AliasState.CONFIRMED, by="ada")
    told = api.client.get("/api/v1/compare", params=query).json()
    assert (told["unchanged"], told["pairs"][0]["tests"]["confirmed"]) == (1, 1)
    assert not any(count for _, count in told["totals"])


@pytest.mark.parametrize(("form", "media"), [("md", "text/markdown"), ("html", "text/html")])
def test_it_is_rendered_for_people_too(
    shared_api: Desk, runs: tuple[str, str], form: str, media: str
) -> None:
    query = {"base": runs[0], "head": runs[1], "format": form}
    answer = shared_api.client.get("/api/v1/compare", params=query)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(media)
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "New failures" in answer.text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"base": "nope", "head": "latest"}, 404),
        ({"base": "latest"}, 422),
        ({"base": "latest", "head": "latest", "format": "pdf"}, 404),
        ({"base": "%00", "head": "latest"}, 404),
    ],
)
def test_what_cannot_be_compared_is_a_problem(
    shared_api: Desk, runs: tuple[str, str], query: dict[str, str], status: int
) -> None:
    answer = shared_api.client.get("/api/v1/compare", params=query)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_report_of_one_run_says_how_to_compare(shared_api: Desk, runs: tuple[str, str]) -> None:
    answer = shared_api.client.get("/api/v1/runs/latest/reports/compare.md")
    assert answer.status_code == 422
    assert "seatrial compare BASE HEAD" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["results", "cost"])
def test_the_other_kinds_are_rendered_from_what_is_stored(
    shared_api: Desk, runs: tuple[str, str], kind: str
) -> None:
    for form in ("md", "html", "json"):
        answer = shared_api.client.get(f"/api/v1/runs/{runs[0]}/reports/{kind}.{form}")
        assert answer.status_code == 200, answer.text


def comparing(controller: FakeController) -> None:
    def answer(request: Request) -> Answer:
        asked = {name: values[0] for name, values in request.query.items()}
        form = asked.pop("format")
        text = (
            json.dumps(asked) if form == "json" else f"# {asked['base']} {asked['head']} {form}\n"
        )
        return Answer(200, text.encode(), "text/plain")

    controller.answers["GET", "/api/v1/compare"] = answer


def test_the_command_prints_it(cli: Cli, controller: FakeController) -> None:
    comparing(controller)
    assert cli("compare", ID, ID) == 0
    assert cli.out == f"# {ID} {ID} md\n"
    assert cli("compare", ID, ID, "--json") == 0
    assert json.loads(cli.out) == {"base": ID, "head": ID}


def test_the_command_writes_it(cli: Cli, controller: FakeController) -> None:
    comparing(controller)
    folder = cli.folder / "out"
    assert cli("compare", ID, ID, "--format", "html", "-o", str(folder)) == 0
    assert (folder / "COMPARE.html").read_text() == f"# {ID} {ID} html\n"
    assert cli.out.strip() == str(folder / "COMPARE.html")
    (cli.folder / "file").write_text("")
    assert cli("compare", ID, ID, "-o", str(cli.folder / "file")) == 2


def test_a_run_that_is_not_there_is_said(cli: Cli, controller: FakeController) -> None:
    comparing(controller)
    assert cli("compare", "", ID) == 2
    assert "name a run" in cli.err


def launched_with_a_wheel(api: Desk, key: str, module: str) -> tuple[str, str]:
    """A run of the subject's one version, whose wheel holds this module; and the wheel's digest."""
    data = wheel_bytes("proof", "1.10", files={"proof/__init__.py": module})
    digest = hashlib.sha256(data).hexdigest()
    assert api.client.put(f"/api/v1/subjects/{digest}", content=data).status_code == 201
    subject = '{name: proof, version: "1.10", wheel: dist/*.whl}'
    asked = MATRIX.replace('{name: proof, version: "1.10"}', subject)
    return str(api.launch(key, matrix=asked, subject=digest)["id"]), digest


def test_two_wheels_of_one_version_are_told_apart_wherever_runs_are_shown(api: Desk) -> None:
    pages = signed_in(api, "admin")
    made = [launched_with_a_wheel(pages.api, name, f"x = {name!r}\n") for name in ("one", "two")]
    client = pages.api.client
    for run, digest in made:
        assert client.get(f"/api/v1/runs/{run}").json()["wheel"] == digest
        assert digest in pages.client.get(f"/runs/{run}").text
        for kind in ("summary", "results"):
            assert digest in client.get(f"/api/v1/runs/{run}/reports/{kind}.md").text
    query = {"base": made[0][0], "head": made[1][0]}
    told = client.get("/api/v1/compare", params=query).json()
    assert [told[side]["wheel_sha256"] for side in ("base", "head")] == [one[1] for one in made]
    words = "The subject differs although its version does not"
    assert words in client.get("/api/v1/compare", params={**query, "format": "md"}).text
    assert words in pages.client.get(f"/compare?a={made[0][0]}&b={made[1][0]}").text

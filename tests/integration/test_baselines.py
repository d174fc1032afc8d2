"""A matrix's baseline, from the file beside it to the plan of the agent."""

from __future__ import annotations

import json

import pytest

from orchestrator.domain.cell import is_own_baseline
from tests.integration.api_context import MANIFEST, MATRIX, Desk, archive, sha256
from tests.integration.wheel_making import wheel_bytes

RUNS = "/api/v1/runs"
WHEEL = b"a wheel"
INSTALLED = MATRIX.replace('"1.10"}', '"1.10", package: "proof==1.10"}')


def launch(api: Desk, matrix: str, **body: object):
    told = {"matrix": matrix, **body}
    key = {"Idempotency-Key": sha256(json.dumps(told).encode())}
    return api.client.post(RUNS, json=told, headers=key)


def test_a_package_needs_no_upload(api: Desk) -> None:
    answer = launch(api, INSTALLED + 'baseline: {package: "proof==1.9"}\n')
    assert answer.status_code == 202, answer.text
    spec = api.database.stores.runs.spec(answer.json()["id"])
    assert spec.matrix.baseline is not None
    assert (spec.matrix.baseline.package, spec.baseline_digest) == ("proof==1.9", None)


def test_a_wheel_is_uploaded_first_and_goes_with_every_rerun(api: Desk) -> None:
    matrix = INSTALLED + "baseline: {wheel: old.whl}\n"
    assert "is not on the server: upload the wheel first" in launch(api, matrix).text
    digest = sha256(WHEEL)
    missing = launch(api, matrix, baseline=digest)
    assert missing.status_code == 422
    assert f"PUT /api/v1/subjects/{digest}" in missing.text
    assert api.client.put(f"/api/v1/subjects/{digest}", content=WHEEL).status_code == 201
    run = launch(api, matrix, baseline=digest).json()["id"]
    assert api.database.stores.runs.spec(run).baseline_digest == digest
    for cell in ("here", "there"):
        api.begin(run, cell)
    api.finish(run, "here", "there")
    again = api.client.post(f"{RUNS}/{run}/rerun", headers={"Idempotency-Key": "r"}).json()
    assert api.database.stores.runs.spec(again["id"]).baseline_digest == digest


def test_a_payload_must_be_a_payload(api: Desk) -> None:
    matrix = MATRIX + "baseline: {payload: {path: ../old}}\n"
    old = archive(extra="x")
    digest = sha256(old)
    assert api.client.put(f"/api/v1/subjects/{digest}", content=old).status_code == 201
    assert launch(api, matrix, baseline=digest).status_code == 422
    assert api.client.put(f"/api/v1/payloads/{digest}", content=old).status_code == 201
    assert launch(api, matrix, baseline=digest, name="second").status_code == 202


def test_a_baseline_of_the_same_contents_is_the_subject_itself(api: Desk) -> None:
    asked = MATRIX.replace('"1.10"}', '"1.10", wheel: proof.whl}') + "baseline: {wheel: old.whl}\n"
    wheel, older = wheel_bytes("proof", "1.10"), wheel_bytes("proof", "1.9")
    again = wheel_bytes("proof", "1.10") + b"zipped again"
    for one in (wheel, again, older):
        assert api.client.put(f"/api/v1/subjects/{sha256(one)}", content=one).status_code == 201
    for baseline, is_told in ((wheel, True), (again, True), (older, False)):
        told = {"matrix": asked, "subject": sha256(wheel), "baseline": sha256(baseline)}
        plan = api.client.post("/api/v1/plan", json=told).json()
        assert any("compare it with itself" in one for one in plan["warnings"]) is is_told
        run = launch(api, **told).json()["id"]
        assert is_own_baseline("", api.database.stores.runs.spec(run)) is is_told


def test_pairs_are_told_and_turns_are_not_metrics(api: Desk) -> None:
    run = launch(api, MATRIX).json()["id"]
    agent = api.begin(run, "here")
    said = {"metric": "m", "unit": "ms", "direction": "lower"}
    agent.send(
        agent.line("phase", "demo", name="started"),
        agent.line("metric", "demo", **said, samples=[11, 11]),
        agent.line("metric", "demo", **said, samples=[11], arm="subject", turn=0),
        agent.line("metric", "demo", **said, samples=[10], arm="baseline", turn=1),
    )
    cells = api.client.get(f"{RUNS}/{run}").json()["cells"]
    [job] = [job for job in cells[0]["jobs"] if job["id"] == "demo"]
    assert [metric["samples"] for metric in job["metrics"]] == [[11, 11]]
    [pair] = job["pairs"]
    assert (pair["metric"], pair["subject"], pair["baseline"]) == ("m", [11], [10])
    assert pair["slowdown"] == pytest.approx(0.1)


NEEDS = '[python]\nrequires = ["numpy"]\n'


@pytest.mark.parametrize(
    ("provider", "more", "is_told"),
    [
        ("local", "", True),
        ("fake", "", False),
        ("local", 'candidates = ["/opt/python"]\n', False),
        ("local", '[env.image]\npython = ["/opt/python"]\n', False),
    ],
)
def test_a_plan_says_where_jobs_may_see_packages_of_seatrial(
    api: Desk, provider: str, more: str, is_told: bool
) -> None:
    data = archive(MANIFEST.replace("[[job]]", f"{NEEDS}{more}[[job]]", 1))
    assert api.client.put(f"/api/v1/payloads/{sha256(data)}", content=data).status_code == 201
    matrix = MATRIX.replace("{id: here, provider: fake}", f"{{id: here, provider: {provider}}}")
    body = {"matrix": matrix, "payload": sha256(data)}
    plan = api.client.post("/api/v1/plan", json=body).json()
    said = [text for text in plan["warnings"] if "Seatrial's own Python" in text]
    assert [text.partition(":")[0] for text in said] == (["here"] if is_told else [])

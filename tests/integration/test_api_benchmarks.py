"""Benchmarks over many runs, over REST."""

from __future__ import annotations

import numpy as np
import pytest

from tests.databases import Agent, attempt
from tests.integration.api_context import MATRIX, Desk

API = "/api/v1"


def metric(agent: Agent, value: float, **more: object) -> bytes:
    said = {"metric": "latency/p50", "samples": [value, value * 1.001, value * 0.999], "unit": "ms"}
    return agent.line("metric", "moe", **said, direction="lower", **more)


def nights(api: Desk, values: list[float], *, torch: list[str], cell: int = 0) -> list[str]:
    """A run each day whose cell measured the value with that torch."""
    stores, runs = api.database.stores, []
    for number, value in enumerate(values):
        api.clock.move(days=1)
        headers = {"Idempotency-Key": f"night-{cell}-{number}"}
        answer = api.client.post(f"{API}/runs", json={"matrix": MATRIX}, headers=headers)
        run = answer.json()["id"]
        agent = Agent(stores, attempt(stores, stores.cells.of_run(run)[cell].id))
        packages = {"torch": torch[number]}
        assert agent.send(agent.line("environment", packages=packages), metric(agent, value))
        runs.append(run)
    return runs


def levels(before: int, after: int, factor: float) -> list[float]:
    noise = np.random.default_rng(1).standard_normal(before + after) * 0.005
    steps = np.where(np.arange(before + after) < before, 1.0, factor)
    return [float(value) for value in 20 * steps * np.exp(noise)]


def get(api: Desk, path: str, **query: object):
    answer = api.client.get(f"{API}{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def test_a_series_is_told_with_the_step_in_it(api: Desk) -> None:
    runs = nights(api, levels(12, 5, 1.08), torch=["2.8"] * 17)
    (series,) = get(api, "/benchmarks/moe/latency/p50/series")
    assert (series["job"], series["metric"], series["cell"]) == ("moe", "latency/p50", "here")
    assert [point["run"] for point in series["points"]] == runs
    assert series["points"][0]["samples"] == 3
    assert series["points"][0]["at"] == "2026-03-02T12:00:00Z"
    (change,) = series["changes"]
    assert (change["run"], change["index"], change["is_worse"]) == (runs[12], 12, True)
    assert change["change"] == pytest.approx(0.08, abs=0.02)
    assert (change["environment_changed"], change["environment"]) == (False, [])
    assert (series["is_noisy"], series["doubts"]) == (False, [])


def test_a_step_with_another_torch_is_doubted_and_names_it(api: Desk) -> None:
    nights(api, levels(12, 5, 0.9), torch=["2.8"] * 12 + ["2.9"] * 5)
    (series,) = get(api, "/benchmarks/moe/latency/p50/series")
    (change,) = series["changes"]
    assert change["is_worse"] is False
    assert change["environment"] == [{"what": "package torch", "before": "2.8", "since": "2.9"}]
    assert series["is_noisy"] is True
    assert "changed at the change point" in series["doubts"][0]


def test_each_platform_has_a_series_of_its_own(api: Desk) -> None:
    nights(api, [20.0, 20.1], torch=["2.8"] * 2)
    nights(api, [10.0], torch=["2.8"], cell=1)
    both = get(api, "/benchmarks/moe/latency/p50/series", product="proof")
    assert [(one["platform"], len(one["points"])) for one in both] == [("here", 2), ("there", 1)]
    (there,) = get(api, "/benchmarks/moe/latency/p50/series", platform="there")
    assert [point["value"] for point in there["points"]] == [10.0]
    assert there["autocorrelation"] is None
    (newest,) = get(api, "/benchmarks/moe/latency/p50/series", runs=1)
    assert newest["platform"] == "there"


def test_a_paired_benchmark_s_point_is_the_median_of_the_subject_s_turns(api: Desk) -> None:
    run = api.launch()
    stores = api.database.stores
    agent = Agent(stores, attempt(stores, stores.cells.of_run(str(run["id"]))[0].id))
    turns = [("subject", 10.0), ("baseline", 90.0), ("baseline", 90.0), ("subject", 30.0)]
    assert agent.send(
        *(metric(agent, value, arm=arm, turn=turn) for turn, (arm, value) in enumerate(turns))
    )
    (series,) = get(api, "/benchmarks/moe/latency/p50/series")
    (point,) = series["points"]
    assert (point["value"], point["samples"]) == (20.0, 6)


def test_what_nobody_measured_is_not_found(api: Desk) -> None:
    nights(api, [20.0], torch=["2.8"])
    for name in ("nope", "moe/nope", "nope/latency/p50", "moe", "/", "moe/%00"):
        answer = api.client.get(f"{API}/benchmarks/{name}/series")
        assert answer.status_code == 404, name
        assert answer.headers["content-type"] == "application/problem+json"
        assert "a benchmark is named job/metric" in answer.json()["detail"]


@pytest.mark.parametrize(("key", "value"), [("runs", 0), ("runs", 1001), ("runs", "x")])
def test_a_bad_question_names_its_field(shared_api: Desk, key: str, value: object) -> None:
    answer = shared_api.client.get(f"{API}/benchmarks/moe/x/series", params={key: value})
    assert answer.status_code == 422
    assert key in answer.text

"""The trial of the benchmark core: what it compares, what it plants, and its verdict."""

from __future__ import annotations

import importlib.util

import pytest

from tests.payload.collected import PAYLOAD, ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # of what torch imports


@pytest.fixture
def trial(monkeypatch):
    monkeypatch.syspath_prepend(str(PAYLOAD))
    spec = importlib.util.spec_from_file_location(
        "trial", ROOT / "benchmarks" / "bench_core_fairness.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cpu(trial):
    return trial.torch.device("cpu")


def test_fifty_different_works(trial, cpu):
    benchmarks = list(trial.same_twice(cpu, trial.COMPARISONS))
    assert len({benchmark.name for benchmark in benchmarks}) == trial.COMPARISONS == 50
    assert all(benchmark.subject.work is benchmark.baseline.work for benchmark in benchmarks)


def test_what_is_planted(trial, cpu, monkeypatch):
    calls = []
    monkeypatch.setattr(trial, "SMALL", (lambda device, size: lambda: calls.append(1) or cpu,))
    benchmark = trial.slowed(cpu, 0)
    benchmark.subject.work()
    assert len(calls) == 21
    benchmark.baseline.work()
    assert len(calls) == 41


@pytest.mark.parametrize(("missed", "seen", "code"), [(3, 9, 0), (4, 10, 1), (0, 8, 1), (0, 10, 0)])
def test_verdict(trial, monkeypatch, capsys, missed, seen, code):
    monkeypatch.setattr(trial, "outside", lambda *_: missed)
    monkeypatch.setattr(trial, "found", lambda *_: seen)
    threads = trial.torch.get_num_threads()
    assert trial.main([]) == code
    trial.torch.set_num_threads(threads)
    assert f"{missed} of 50 outside" in capsys.readouterr().out

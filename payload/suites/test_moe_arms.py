"""The baselines of the MoE benchmark compute the same as the layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks import moe_arms, moe_throughput
from suites.moe_reference import CUDA
from suites.numerics import TOLERANCE, relative_error
from torchbridge.bench import run_benchmark
from torchbridge.moe.grouped import why_not

SHAPE = moe_arms.Shape(32, 64, experts=4, batch=5, sequence=13)
CPU = torch.device("cpu")
needs_hf = pytest.mark.skipif(moe_arms.why_no_hf() is not None, reason=str(moe_arms.why_no_hf()))


def benchmarks(shape=SHAPE):
    hf = moe_arms.why_no_hf() is None
    return moe_arms.own_benchmarks(shape, CPU) + (moe_arms.hf_benchmarks(shape, CPU) if hf else [])


def test_plain_grouped_product_and_its_gradients():
    """The plain grouped product gives the layer's outputs and gradients of the weights."""
    layer = moe_arms.make_layer(SHAPE, CPU, moe_arms.SwiGLUMoE)
    x = moe_arms.make_tokens(SHAPE, CPU)
    if reason := why_not(CPU, x.dtype, (32, 64)):
        pytest.skip(reason)
    outputs = [layer(x), moe_arms.plain_grouped_mm(layer, x)]
    assert relative_error(outputs[1], outputs[0]) <= TOLERANCE[x.dtype]
    weights = [*layer.experts.parameters()]
    ours, theirs = (torch.autograd.grad(one.square().sum(), weights) for one in outputs)
    for mine, other in zip(ours, theirs, strict=True):
        assert relative_error(other, mine) <= 2 * TOLERANCE[x.dtype]


@torch.no_grad()
def test_benchmarks_name_and_measure_what_they_compare():
    for benchmark in benchmarks():
        outcome = run_benchmark(benchmark, pairs=2, at_least=2, budget_s=0.0, quiet=True)
        assert outcome.equality.equal
        assert len(outcome.seconds("subject")) == len(outcome.seconds("baseline")) == 2
        assert benchmark.params["tokens"] == 65
        products = 3 if "hf" in benchmark.baseline.name else 2
        assert benchmark.work.flops == 65 * 2 * products * 2 * 32 * 64  # tokens, k, products, 2 d h
    names = ["moe/32", "moe/32/dense_all_experts", "moe/32/hf_eager", "moe/32/hf_grouped_mm"]
    assert [benchmark.name for benchmark in benchmarks()] == names[: len(benchmarks())]
    assert {benchmark.work.bytes for benchmark in benchmarks()} == {0}
    assert moe_arms.benchmark_name(
        replace(SHAPE, batch=64, sequence=1, dtype="bfloat16"), "hf_eager"
    ) == ("moe/32/decode/bf16/hf_eager")


@needs_hf
@pytest.mark.parametrize(("rows", "graph"), [(64, None), (65, False), (65, True)])
def test_few_rows_read_the_weights_and_are_captured_as_others_when_asked(monkeypatch, rows, graph):
    monkeypatch.setattr(moe_arms, "captured", lambda layer, x: lambda: x)
    shape = replace(SHAPE, batch=rows, sequence=1)
    asked = {} if graph is None else {"graph": graph}
    for benchmark in moe_arms.hf_benchmarks(shape, CPU, **asked):
        assert benchmark.subject.name == ("layer" if graph is False else "layer as a graph")
        weights = 4 * (4 * 3 * 32 * 64 + 4 * 32)  # float32; up and gate, down; the router
        assert benchmark.work.bytes == (weights if rows == 64 else 0)


@CUDA
@torch.no_grad()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_captured_layer_computes_what_is_in_its_input(dtype):
    shape, device = replace(SHAPE, batch=16, sequence=1, dtype=dtype), torch.device("cuda")
    layer, x = moe_arms.make_layer(shape, device), moe_arms.make_tokens(shape, device)
    replay = moe_arms.captured(layer, x)
    for _ in range(3):
        x.normal_()
        assert relative_error(replay(), layer(x)) <= TOLERANCE[x.dtype]


def test_what_waits_for_the_device_is_not_captured(capsys):
    layer = moe_arms.make_layer(SHAPE, torch.device("meta"))
    assert moe_arms.captured(layer, torch.empty(65, 32, device="meta", dtype=torch.float64)) is None
    assert moe_arms.captured(moe_arms.make_layer(SHAPE, CPU), torch.zeros(2, 32)) is None
    told = capsys.readouterr().out.splitlines()
    assert "the host waits for the device" in told[0]
    assert told[1] == "  no graph: a CUDA graph needs a CUDA device, not cpu"


@torch.no_grad()
def test_a_layer_that_leaves_work_out_is_not_timed():
    shape = replace(SHAPE, top_k=1)
    benchmark = moe_arms.own_benchmarks(shape, CPU)[0]
    layer = benchmark.subject.work.func
    outcome = run_benchmark(benchmark, pairs=2, at_least=2, budget_s=0.0, quiet=True)
    assert outcome.equality.equal
    layer.config = replace(layer.config, drop_tokens=True, capacity_factor=0.5, min_capacity=0)
    outcome = run_benchmark(benchmark, pairs=2, at_least=2, budget_s=0.0, quiet=True)
    assert not outcome.equality.equal
    assert outcome.samples == ()
    benchmark.subject.work()
    assert int(layer.dropped) > 0
    assert (outcome.equality.unit, outcome.equality.error) == ("assignments", int(layer.dropped))


def test_the_benchmark_offers_its_arms():
    assert moe_throughput.mask_loop is moe_arms.mask_loop
    assert moe_throughput.dense_all_experts is moe_arms.dense_all_experts
    assert moe_throughput.hf_arms is moe_arms.hf_arms
    brief = [benchmark.name for benchmark in moe_throughput.benchmarks(32, 1, CPU, full=False)]
    assert brief == ["moe/32", "moe/32/dense_all_experts"]
    whole = [benchmark.name for benchmark in moe_throughput.benchmarks(32, 1, CPU, full=True)]
    assert whole[:2] == brief
    assert ("moe/32/decode/hf_eager" in whole) == (moe_arms.why_no_hf() is None)

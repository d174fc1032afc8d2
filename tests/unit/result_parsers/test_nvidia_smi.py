"""What nvidia-smi prints."""

from __future__ import annotations

import pytest

from orchestrator.adapters.result_parsers.nvidia_smi import NvidiaSmi
from orchestrator.application.ports.result_parsers import UnreadableError
from orchestrator.domain.parsed_results import ParsedEnvironment, ParsedJob, ParsedMetric
from tests.unit.result_parsers.foreign import (
    errors,
    foreign,
    made,
    of_kind,
    warnings,
)

DIALECT = NvidiaSmi()
MIB = 1024 * 1024


def devices(said):
    (environment,) = of_kind(said, ParsedEnvironment)
    return environment.facts["machine"]["devices"]


def read(folder, text, name="gpu.csv"):
    return list(DIALECT.read(made(folder, text, name)))


def test_a_query_tells_the_devices():
    said = list(DIALECT.read(foreign("nvidia-query.csv")))
    first, second = devices(said)
    assert first == {
        "vendor": "nvidia",
        "name": "NVIDIA A10G",
        "uuid": "GPU-5e0b1f0a-0000-4000-8000-000000000001",
        "memory_bytes": 23028 * MIB,
        "driver": "580.105.08",
        "compute_capability": "8.6",
    }
    assert second["uuid"].endswith("2")
    assert of_kind(said, ParsedMetric) == []
    assert errors(said) == warnings(said) == []


def test_a_series_is_samples():
    said = list(DIALECT.read(foreign("nvidia-series.csv")))
    metrics = {(m.name, m.unit): (m.samples, m.direction) for m in of_kind(said, ParsedMetric)}
    assert metrics == {
        ("utilization.gpu", "%"): ((50.0, 75.0), "higher"),
        ("memory.used", "MiB"): ((1024.0, 2048.0, 2048.0), "lower"),
        ("clocks.current.sm", "MHz"): ((1200.0, 1300.0, 1400.0), "higher"),
        ("temperature.gpu", ""): ((51.0, 52.0, 53.0), "lower"),
    }
    assert len(devices(said)) == 1
    assert of_kind(said, ParsedJob)[0].kind == "benchmark"
    assert warnings(said) == ["1 left out: lines have another number of cells than the first one"]


def test_series_of_two_devices_are_told_apart(tmp_path):
    rows = "".join(f"{n % 2}, NVIDIA L4, {50 + n} %\n" for n in range(4))
    metrics = of_kind(read(tmp_path, f"index, name, utilization.gpu [%]\n{rows}"), ParsedMetric)
    assert [(m.params["device"], m.samples) for m in metrics] == [
        ("NVIDIA L4", (50.0, 52.0)),
        ("NVIDIA L4", (51.0, 53.0)),
    ]
    assert len({m.params["id"] for m in metrics}) == 2


def test_without_header_the_cells_speak_for_themselves():
    document = foreign("nvidia-bare.csv")
    assert DIALECT.match(document) == 0.7
    one = {
        "vendor": "nvidia",
        "name": "NVIDIA L4",
        "memory_bytes": 23034 * MIB,
        "driver": "580.105.08",
    }
    assert devices(list(DIALECT.read(document))) == [one, one]


@pytest.mark.parametrize(("more", "confidence"), [(197, 0.7), (198, 0.0)])
def test_more_than_two_hundred_cells_are_no_row_of_a_device(tmp_path, more, confidence):
    row = f"NVIDIA L4, 580.105.08, 23034 MiB{', 1' * more}\n"
    assert DIALECT.match(made(tmp_path, row, "gpu.csv")) == confidence


@pytest.mark.parametrize(
    ("unit", "amount", "size"),
    [
        (" [MiB]", "15360", 15360 * MIB),
        ("", "15728640 KiB", 15360 * MIB),
        ("", "15360 MiB", 15360 * MIB),
        ("", "15 GiB", 15360 * MIB),
        ("", "16000 MB", 16 * 10**9),
        ("", "16 GB", 16 * 10**9),
        ("", "16000000000 B", 16 * 10**9),
    ],
)
def test_the_unit_of_memory_stands_in_the_header_or_in_the_cell(tmp_path, unit, amount, size):
    said = read(tmp_path, f"name, memory.total{unit}\nTesla T4, {amount}\n")
    assert devices(said)[0]["memory_bytes"] == size


@pytest.mark.parametrize("name", ["nvidia-table.txt", "nvidia-long.txt"])
def test_the_texts_for_people(name):
    document = foreign(name)
    said = list(DIALECT.read(document))
    (device,) = devices(said)
    assert DIALECT.match(document) == 0.85
    assert device["name"] == "NVIDIA L4"
    assert device["memory_bytes"] == 23034 * MIB
    assert device["driver"] == "580.105.08"
    # The newest CUDA that the driver can serve is not the one that a program was built for.
    assert "cuda" not in of_kind(said, ParsedEnvironment)[0].facts


@pytest.mark.parametrize(
    "text",
    [
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "name, memory.total [MiB]\n",
        "name, memory.total [MiB]\nNo devices were found\n",
    ],
)
def test_no_device_is_an_error(tmp_path, text):
    document = made(tmp_path, text, "gpu.csv")
    assert DIALECT.match(document) >= 0.8
    said = list(DIALECT.read(document))
    assert devices(said) == []
    assert errors(said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a, b\n1, 2\n",
        "name, value\nx, 1\n",
        "platform linux -- Python 3.11, pytest-9\n",
        "GPU: NVIDIA L4\nDone, all 3 passed\n",
    ],
)
def test_other_texts_are_not_its_own(tmp_path, text):
    document = made(tmp_path, text, "gpu.csv")
    assert DIALECT.match(document) == 0.0
    with pytest.raises(UnreadableError):
        list(DIALECT.read(document))


def test_devices_are_bounded(tmp_path):
    rows = "".join(f"{n}, NVIDIA L4, 23034 MiB\n" for n in range(100))
    said = read(tmp_path, "index, name, memory.total [MiB]\n" + rows)
    assert len(devices(said)) == 64
    assert "36 left out" in warnings(said)[0]

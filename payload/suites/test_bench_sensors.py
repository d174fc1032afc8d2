"""Sensors report the values of their sources, and nothing without a source."""

from __future__ import annotations

import ctypes

import pytest
import torch

from torchbridge.bench.sensors import (
    EVERY_S,
    NvmlSensors,
    Sensors,
    cpu_readings,
    driver,
    last_level_cache,
    summary,
)

CPU = torch.device("cpu")
NOT_SUPPORTED = 3


def write(root, **files: str):
    """Write files below `root`, whose names have `__` for slashes; return `root`."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class FakeNvml:
    """A fake of NVML: returns a code, and writes the given value of a function if there is one."""

    def __init__(self, **answers: int | None) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: object) -> int:
        self.asked.append(("uuid", name.decode()))
        return 0 if name == b"GPU-12-34" else NOT_SUPPORTED

    def nvmlSystemGetDriverVersion(self, text: ctypes.Array, size: int) -> int:
        text.value = b"580.65.06"
        return 0

    def __getattr__(self, function: str):
        if not function.startswith("nvmlDevice"):
            raise AttributeError(function)

        def answer(handle: object, *arguments) -> int:
            self.asked.append((function, *map(str, arguments[:-1])))
            value = self.answers.get(function)
            if value is None:
                return NOT_SUPPORTED
            ctypes.cast(arguments[-1], ctypes.POINTER(ctypes.c_uint))[0] = value
            return 0

        return answer


ALL = {
    "nvmlDeviceGetClockInfo": 1755,
    "nvmlDeviceGetTemperature": 66,
    "nvmlDeviceGetPowerUsage": 345_120,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
}


class TestNvidia:
    def test_what_it_says(self):
        library = FakeNvml(**ALL)
        assert NvmlSensors(library, ctypes.c_void_p(7)).read_sensors() == {
            "sm_clock_mhz": 1755,
            "gpu_temperature_c": 66,
            "power_w": pytest.approx(345.12),
            "throttled": 1.0,
        }
        assert ("nvmlDeviceGetClockInfo", "1") in library.asked  # 1 is the SM clock

    @pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2, 0x3])
    def test_idle_and_set_clocks_are_no_throttling(self, reasons):
        library = FakeNvml(nvmlDeviceGetCurrentClocksThrottleReasons=reasons)
        assert NvmlSensors(library, ctypes.c_void_p(7)).read_sensors() == {"throttled": 0.0}

    def test_what_does_not_answer_is_left_out_and_not_asked_again(self):
        library = FakeNvml(**ALL | {"nvmlDeviceGetPowerUsage": None})
        sensors = NvmlSensors(library, ctypes.c_void_p(7))
        assert "power_w" not in sensors.read_sensors()
        library.asked.clear()
        assert set(sensors.read_sensors()) == {"sm_clock_mhz", "gpu_temperature_c", "throttled"}
        assert ("nvmlDeviceGetPowerUsage",) not in library.asked

    @pytest.mark.parametrize(
        ("uuid", "known"), [("12-34", True), ("GPU-12-34", True), ("9", False)]
    )
    def test_the_device_is_found_by_what_torch_calls_it(self, monkeypatch, uuid, known):
        class Properties:
            pass

        properties = Properties()
        properties.uuid = uuid
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        found = NvmlSensors.open(torch.device("cuda"), FakeNvml(**ALL))
        assert (found is not None) == known
        del properties.uuid  # an older torch
        assert NvmlSensors.open(torch.device("cuda"), FakeNvml(**ALL)) is None

    def test_driver(self):
        assert driver(FakeNvml()) == "580.65.06"
        assert driver(object()) is None


class TestCpu:
    def test_linux(self, tmp_path):
        folder = "sys__devices__system__cpu"
        files = {
            f"{folder}__cpu0__cpufreq__scaling_cur_freq": "3000000\n",
            f"{folder}__cpu1__cpufreq__scaling_cur_freq": "2000000\n",
            "sys__class__thermal__thermal_zone0__temp": "41000\n",
            "sys__class__thermal__thermal_zone1__temp": "52500\n",
            "proc__loadavg": "1.25 0.80 0.50 3/400 12345\n",
            "proc__cpuinfo": "cpu MHz\t\t: 1000.0\n",
        }
        assert cpu_readings(write(tmp_path, **files)) == {
            "cpu_mhz": 2500.0,
            "cpu_temperature_c": 52.5,
            "load_1m": 1.25,
            "running": 3,
        }

    def test_without_cpufreq_the_kernels_own_figure(self, tmp_path):
        text = "processor\t: 0\ncpu MHz\t\t: 2596.1\nprocessor\t: 1\ncpu MHz\t\t: 2600.1\n"
        assert cpu_readings(write(tmp_path, proc__cpuinfo=text)) == {"cpu_mhz": 2598.1}

    @pytest.mark.parametrize("text", ["", "<unknown>\n", "0x12\n", "nan\n", "1e9\n"])
    def test_unreadable_sensor_is_left_out(self, tmp_path, text):
        files = {
            "sys__devices__system__cpu__cpu0__cpufreq__scaling_cur_freq": text,
            "sys__class__thermal__thermal_zone0__temp": text,
            "proc__loadavg": text,
        }
        assert cpu_readings(write(tmp_path, **files)) == {}
        assert cpu_readings(tmp_path / "nowhere") == {}

    @pytest.mark.parametrize(
        ("sizes", "largest"),
        [(("48K", "1024K", "32768K"), 2**25), (("2M",), 2**21), (("?",), None), ((), None)],
    )
    def test_last_level_cache(self, tmp_path, sizes, largest):
        for number, size in enumerate(sizes):
            write(
                tmp_path, **{f"sys__devices__system__cpu__cpu0__cache__index{number}__size": size}
            )
        assert last_level_cache(CPU, tmp_path) == largest
        assert last_level_cache(torch.device("meta"), tmp_path) is None


class TestSharing:
    def test_short_samples_share_a_reading(self, tmp_path):
        now = [0.0]
        sensors = Sensors(CPU, root=tmp_path, clock=lambda: now[0])
        write(tmp_path, proc__loadavg="1.00 0 0 1/2 3\n")
        first = sensors.read_sensors()
        write(tmp_path, proc__loadavg="2.00 0 0 1/2 3\n")
        now[0] = EVERY_S / 2
        assert sensors.read_sensors() is first
        now[0] = EVERY_S
        assert sensors.read_sensors()["load_1m"] == 2.0
        assert first["load_1m"] == 1.0

    def test_summary(self):
        readings = [{"load_1m": 1.0}, {"load_1m": 3.5, "power_w": 70.0}]
        assert summary(readings) == {"load_1m": "1 to 3.5", "power_w": "70 to 70"}
        assert summary([{}]) == {}

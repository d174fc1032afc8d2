"""Reading the vendors' tools. The samples follow each tool's documented shape; none is recorded."""

from __future__ import annotations

import json
from pathlib import Path

from runners.agent import devices

NVIDIA = """\
0, NVIDIA A10G, GPU-11111111-2222-3333-4444-555555555555, 23028, 580.95.05, 1710, 6251, 8.6
1, NVIDIA L4, GPU-66666666-7777-8888-9999-000000000000, [N/A], 580.95.05, [N/A], 6251
"""


def test_nvidia() -> None:
    first, second = devices.parse_nvidia(NVIDIA)
    assert first == {
        "index": 0, "vendor": "nvidia", "name": "NVIDIA A10G",
        "uuid": "GPU-11111111-2222-3333-4444-555555555555", "memory_bytes": 23028 * 1024 * 1024,
        "compute_capability": "8.6", "clocks_mhz": {"sm": 1710, "mem": 6251}, "driver": "580.95.05",
    }  # fmt: skip
    assert second["memory_bytes"] is None
    assert second["compute_capability"] is None
    assert second["clocks_mhz"] == {"sm": None, "mem": 6251}
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    assert devices.parse_nvidia(failed) == []


def test_amd() -> None:
    asic = {"market_name": "MI300X", "asic_serial": "0x1", "target_graphics_version": "gfx942"}
    card = {"gpu": 0, "asic": asic, "vram": {"size": {"value": 196592, "unit": "MB"}}}
    for raw in ([card], {"gpu_data": [card]}):
        (found,) = devices.parse_amd_smi("WARNING: something\n" + json.dumps(raw))
        assert (found["vendor"], found["name"], found["compute_capability"]) == (
            "amd", "MI300X", "gfx942",
        )  # fmt: skip
        assert found["memory_bytes"] == 196592 * 1024 * 1024
    cards = {
        f"card{n}": {"Card Series": "MI250", "VRAM Total Memory (B)": "68702699520"}
        for n in (10, 2)
    }
    found = devices.parse_rocm_smi(json.dumps({**cards, "system": {"Driver version": "6.8"}}))
    assert [(one["index"], one["memory_bytes"], one["driver"]) for one in found] == [
        (0, 68702699520, "6.8"),
        (1, 68702699520, "6.8"),
    ]


def test_intel() -> None:
    raw = {"device_list": [{"device_id": 0, "device_name": "Max 1550", "uuid": "u-0"}]}
    (found,) = devices.parse_xpu_smi(json.dumps(raw))
    assert (found["vendor"], found["name"], found["uuid"]) == ("intel", "Max 1550", "u-0")


def test_nonsense_is_no_device() -> None:
    for text in ("", "no json", "[", "{}", "[1, 2]", '{"device_list": 3}', "null"):
        assert devices.parse_amd_smi(text) == []
        assert devices.parse_rocm_smi(text) == []
        assert devices.parse_xpu_smi(text) == []
        assert devices.parse_nvidia(text) == []


def test_tpu_chips_by_pci_id(tmp_path: Path) -> None:
    for slot, vendor, device in (("0", "0x1ae0", "0x0063"), ("1", "0x1ae0", "0x9999")):
        folder = tmp_path / "sys/bus/pci/devices" / slot
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    assert devices.tpus(tmp_path) == [], "no accelerator node, no device"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").write_text("")
    found = devices.tpus(tmp_path)
    assert [(one["vendor"], one["name"]) for one in found] == [("google", "TPU v5e")]
    assert devices.gpu_count([*found, *devices.parse_nvidia(NVIDIA)]) == 2

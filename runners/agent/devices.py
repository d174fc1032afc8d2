"""Lists the machine's accelerators as the vendors' tools report them; none without a tool."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from . import bounded_process
from .evidence_text import JsonValue

Device = Dict[str, JsonValue]

_TIMEOUT_S = 30.0
_MIB = 1024 * 1024
_NVIDIA_FIELDS = (
    "index,name,uuid,memory.total,driver_version,clocks.max.sm,clocks.max.memory,compute_cap"
)
_GOOGLE_PCI = "0x1ae0"
_TPU_NAMES = {
    "0x0027": "TPU v3", "0x0056": "TPU v4", "0x005e": "TPU v4", "0x0062": "TPU v5p",
    "0x0063": "TPU v5e", "0x006f": "TPU v6e",
}  # fmt: skip


def find() -> List[Device]:
    """Return every accelerator, each vendor's numbered from 0."""
    return [*_nvidia(), *_amd(), *_intel(), *tpus()]


def gpu_count(devices: Sequence[Mapping[str, JsonValue]]) -> int:
    """Count the GPUs among the devices (a TPU chip is none)."""
    return sum(device.get("vendor") != "google" for device in devices)


def nvidia_details() -> Optional[bytes]:
    """Return the output of ``nvidia-smi -q``, or None without it."""
    answer = _ask("nvidia-smi", "-q")
    return answer.output if answer is not None and answer.ok else None


def parse_nvidia(text: str) -> List[Device]:
    """Parse nvidia-smi's CSV of `_NVIDIA_FIELDS`, without header and units."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [_nvidia_device(row) for row in rows if len(row) in (7, 8) and row[0].isdigit()]


def parse_amd_smi(text: str) -> List[Device]:
    """Parse the output of ``amd-smi static --json``; empty if it is invalid."""
    raw = _json(text)
    cards = raw.get("gpu_data", raw) if isinstance(raw, dict) else raw
    if not isinstance(cards, list):
        return []
    return [_amd_card(n, card) for n, card in enumerate(cards) if isinstance(card, dict)]


def parse_rocm_smi(text: str) -> List[Device]:
    """Parse ``rocm-smi`` with names, ids and memory as JSON; empty if it is invalid."""
    raw = _json(text)
    if not isinstance(raw, dict):
        return []
    driver = _in(raw, "system", "Driver version")
    cards = [raw[key] for key in sorted(raw, key=_natural) if re.fullmatch(r"card\d+", str(key))]
    return [_rocm_card(n, card, driver) for n, card in enumerate(cards) if isinstance(card, dict)]


def parse_xpu_smi(text: str) -> List[Device]:
    """Parse the output of ``xpu-smi discovery -j``; empty if it is invalid."""
    cards = _in(_json(text), "device_list")
    if not isinstance(cards, list):
        return []
    return [
        _device(
            n,
            "intel",
            name=_in(card, "device_name"),
            uuid=_in(card, "uuid"),
            memory_bytes=_whole(_in(card, "memory_physical_size_byte")),
            driver=_in(card, "driver_version"),
        )
        for n, card in enumerate(cards)
    ]


def _nvidia() -> List[Device]:
    for fields in (_NVIDIA_FIELDS, _NVIDIA_FIELDS.rpartition(",")[0]):
        answer = _ask("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        if answer is None:
            return []
        if answer.ok:
            return parse_nvidia(answer.text)
    return []


def _nvidia_device(row: Sequence[str]) -> Device:
    index, name, uuid, memory, driver, sm, mem, *more = row
    device = _device(
        int(index), "nvidia", name=name, uuid=uuid, driver=_known(driver),
        memory_bytes=_whole(memory, _MIB), compute_capability=_known(more[0]) if more else None,
    )  # fmt: skip
    device["clocks_mhz"] = {"sm": _whole(sm), "mem": _whole(mem)}
    return device


def _amd() -> List[Device]:
    answer = _ask("amd-smi", "static", "--json")
    found = parse_amd_smi(answer.text) if answer is not None and answer.ok else []
    if found:
        return found
    options = ("--showproductname", "--showuniqueid", "--showmeminfo", "vram")
    answer = _ask("rocm-smi", *options, "--showdriverversion", "--json")
    return parse_rocm_smi(answer.text) if answer is not None and answer.ok else []


def _amd_card(index: int, card: Mapping[str, object]) -> Device:
    size = _in(card, "vram", "size")
    value = _in(size, "value") if isinstance(size, dict) else size
    return _device(
        index,
        "amd",
        name=_in(card, "asic", "market_name"),
        uuid=_in(card, "asic", "asic_serial") or _in(card, "uuid"),
        memory_bytes=_whole(value, _MIB),
        compute_capability=_in(card, "asic", "target_graphics_version"),
        driver=_in(card, "driver", "version") or _in(card, "driver", "driver_version"),
    )


def _rocm_card(index: int, card: Mapping[str, object], driver: object) -> Device:
    return _device(
        index,
        "amd",
        name=_in(card, "Card Series") or _in(card, "Card series"),
        uuid=_in(card, "Unique ID"),
        memory_bytes=_whole(_in(card, "VRAM Total Memory (B)")),
        compute_capability=_in(card, "GFX Version"),
        driver=driver,
    )


def _intel() -> List[Device]:
    answer = _ask("xpu-smi", "discovery", "-j")
    return parse_xpu_smi(answer.text) if answer is not None and answer.ok else []


def tpus(root: Path = Path("/")) -> List[Device]:
    """Return TPU chips by their PCI ids, if the kernel shows them as accelerators."""
    nodes = [*root.glob("dev/accel[0-9]*"), *root.glob("dev/accel/accel[0-9]*")]
    nodes += root.glob("dev/vfio/[0-9]*")
    if not nodes:
        return []
    return [_device(n, "google", name=name) for n, name in enumerate(tpu_chips(root))]


def tpu_chips(root: Path = Path("/")) -> List[str]:
    """Name the TPU chips on the PCI bus, whether or not a driver shows them."""
    found = sorted(root.glob("sys/bus/pci/devices/*"))
    ids = [line(folder / "device") for folder in found if line(folder / "vendor") == _GOOGLE_PCI]
    return [_TPU_NAMES[device] for device in ids if device in _TPU_NAMES]


def _device(
    index: int,
    vendor: str,
    *,
    name: object = None,
    uuid: object = None,
    memory_bytes: Optional[int] = None,
    compute_capability: object = None,
    driver: object = None,
) -> Device:
    return {
        "index": index,
        "vendor": vendor,
        "name": _words(name),
        "uuid": _words(uuid),
        "memory_bytes": memory_bytes,
        "compute_capability": _words(compute_capability),
        "clocks_mhz": {},
        "driver": _words(driver),
    }


def _ask(tool: str, *arguments: str) -> Optional[bounded_process.ProgramOutput]:
    path = shutil.which(tool)
    return bounded_process.run((path, *arguments), timeout_s=_TIMEOUT_S) if path else None


def _json(text: str) -> object:
    """Read JSON that may have warnings printed before it."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    try:
        return json.loads(text[min(starts) :]) if starts else None
    except ValueError:
        return None


def _in(raw: object, *path: str) -> object:
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _known(text: str) -> Optional[str]:
    """Return the text, or None for a missing value of nvidia-smi, such as ``[N/A]``."""
    return None if not text or text.startswith("[") or text == "N/A" else text


def _words(value: object) -> Optional[str]:
    return str(value) if isinstance(value, (str, int)) and str(value) not in ("", "N/A") else None


def _whole(value: object, factor: int = 1) -> Optional[int]:
    try:
        return int(float(str(value))) * factor
    except (ValueError, OverflowError):
        return None


def _natural(text: object) -> Tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", str(text)))


def line(path: Path) -> str:
    """Return a small file's text without surrounding white space; empty if it is unreadable."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""

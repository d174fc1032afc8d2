"""Models of accelerators, and the verified accelerators of cloud instance types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ARCHITECTURES = {
    "7.0": "Volta",
    "7.5": "Turing",
    "8.0": "Ampere",
    "8.6": "Ampere",
    "8.7": "Ampere",
    "8.9": "Ada Lovelace",
    "9.0": "Hopper",
    "10.0": "Blackwell",
    "10.3": "Blackwell",
    "12.0": "Blackwell",
}
"""NVIDIA's architecture of each compute capability."""


def architecture(capability: str) -> str:
    """Return NVIDIA's architecture of a compute capability; empty if it is unknown."""
    return _ARCHITECTURES.get(capability, "")


@dataclass(frozen=True, slots=True)
class AcceleratorModel:
    """An accelerator model."""

    name: str
    capability: str = ""
    """NVIDIA's compute capability; empty for other vendors."""
    memory_gb: int = 0
    """Memory in GB, as marketed; 0 if it is not recorded."""
    instances: tuple[str, ...] = ()
    """Prefixes of the instance types that have this accelerator."""

    @property
    def architecture(self) -> str:
        """The architecture of the accelerator; empty if it is unknown."""
        return architecture(self.capability)


MODELS = (
    AcceleratorModel("A10G", "8.6", 24, ("g5.",)),
    AcceleratorModel("L4", "8.9", 24, ("g2-standard-", "g6.", "gr6.")),
    AcceleratorModel("L40S", "8.9", 48, ("g6e.",)),
    AcceleratorModel("T4", "7.5", 16, ("g4dn.",)),
    AcceleratorModel("V100", "7.0", 16, ("p3.",)),
    AcceleratorModel("A100", "8.0", 40, ("p4d.", "a2-highgpu-")),
    AcceleratorModel("H100", "9.0", 80, ("p5.", "a3-highgpu-")),
    AcceleratorModel("H200", "9.0", 141, ("p5e.", "p5en.", "a3-ultragpu-")),
    AcceleratorModel("B200", "10.0"),
    AcceleratorModel("MI250"),
    AcceleratorModel("MI300X"),
    AcceleratorModel("TPU v5e"),
    AcceleratorModel("TPU v5p"),
    AcceleratorModel("TPU v6e"),
)
"""Every known model."""
NAMES: Mapping[str, str] = {model.name.lower().removeprefix("tpu "): model.name for model in MODELS}
"""Model names by the word of a platform's id, such as ``h100`` or ``v5e``."""


@dataclass(frozen=True, slots=True)
class IdWords:
    """Words in platform ids that imply an accelerator or an operating system."""

    pattern: str
    """Regular expression of one or more lower-case words, joined by ``-``."""
    examples: tuple[str, ...]
    device: str = ""
    r"""Words of the accelerator's name; may refer to groups of the pattern: ``RTX \\1``."""
    system: str = ""
    """Words of the operating system and the CPU's architecture."""


ANY_GPU = "GPU"
"""The name for any GPU; no TPU chip matches it."""
UNSEEN_DEVICES = frozenset({"gaudi", "trainium", "inferentia", "apple"})
"""Accelerators that none of the agent's tools can report."""

ID_WORDS = (
    IdWords(f"(?:[dh]gx)?({'|'.join(NAMES)})", tuple(NAMES), device=r"\1"),
    IdWords(
        "(?:[dh]gx)?(gh200|gb10|gb200|gb300|b100|b300|h20|h800|a800|a10|a16|a30|a40|a[2456]000|l20|l40"
        "|k40|k80|m60|p40|p100)",
        ("gh200", "gb200", "b300", "h20", "a10", "a40", "a6000", "l40", "k80", "p100"),
        device=r"\1",
    ),
    IdWords(
        r"(rtx|gtx)-?(?:pro-?)?(a?\d{3,4})(?:-?(?:ti|super|ada))?",
        ("rtx-4090", "rtx6000"),
        device=r"\1 \2",
    ),
    IdWords(r"([345]0[5-9]0)(?:-?(?:ti|super))?", ("5090",), device=r"RTX \1"),
    IdWords(r"(mi(?!300|350)\d{2,3}[ax]?|mi3[05]\d[ax])", ("mi210", "mi325x"), device=r"\1"),
    IdWords(r"(?:arc-?)?([ab](?:310|380|570|580|750|770))", ("arc-a770", "b580"), device=r"\1"),
    IdWords(r"(max|flex)-?(140|170|1100|1550)", ("max1550",), device=r"\1 \2"),
    IdWords(r"(?:gaudi-?\d?|hpu)", ("gaudi2", "hpu"), device="Gaudi"),
    IdWords(r"(?:trn\dn?|trainium\d?)", ("trn1", "trainium2"), device="Trainium"),
    IdWords(r"(?:inf[12]|inferentia\d?)", ("inf2",), device="Inferentia"),
    IdWords(r"tpu-?(v\d[ep]?)", ("tpu-v4",), device=r"TPU \1"),
    IdWords(r"v5lite(?:pod)?", ("v5litepod-1",), device="TPU v5e"),
    IdWords(r"(?<!-)v[234]-(?:8|16|32|64|128|256|512)", ("v4-8",), device="TPU"),
    IdWords("trillium", ("trillium",), device="TPU v6e"),
    IdWords(r"(?:tpus?(?:7x)?|ironwood)", ("tpu", "tpu7x", "ironwood"), device="TPU"),
    IdWords("titan-?(v|x|xp|rtx)", ("titan-v",), device=r"TITAN \1"),
    IdWords(
        r"(?:nvidia|geforce|quadro|titan|rtx|gtx|cuda\d*|cu1\d\d|dgx|hgx|jetson|orin|xavier|tegra)",
        ("nvidia", "cuda", "cu128", "dgx", "jetson-orin"),
        device="NVIDIA",
    ),
    IdWords(
        r"(?:tesla|hopper|blackwell|volta|turing|lovelace|ampere(?!-?(?:altra|one)))\d{0,2}",
        ("tesla", "hopper", "blackwell1", "ampere"),
        device="NVIDIA",
    ),
    IdWords(
        r"(?:radeon|instinct|rocm\d*|mi3[05]0|gfx\d+[a-f]?|rx-?\d{4}|w[67]\d00)",
        ("rocm", "mi300", "rx7900", "w7900"),
        device="AMD",
    ),
    IdWords("mps", ("mps",), device="Apple"),
    IdWords("xpu", ("xpu",), device="Intel"),
    IdWords(r"(?<!no-)(?<!non-)(?<!without-)gpus?\d{0,2}", ("gpu", "gpu0"), device=ANY_GPU),
    IdWords(r"(?:windows|win)(?:10|11|32|64)?", ("windows", "win11"), system="Windows"),
    IdWords(r"(?:macos|osx|darwin|mac)\d*", ("macos", "darwin"), system="macOS"),
    IdWords(
        r"(?:linux|ubuntu|debian|fedora|rhel|centos|alpine)\d*", ("linux", "ubuntu"), system="Linux"
    ),
    IdWords("freebsd", ("freebsd",), system="FreeBSD"),
    IdWords("apple-silicon", ("apple-silicon",), system="macOS aarch64"),
    IdWords(
        r"(?:arm|armv8|arm64|aarch64|graviton\d?)",
        ("arm", "armv8", "arm64", "aarch64", "graviton3"),
        system="aarch64",
    ),
    IdWords("armv7l?", ("armv7",), system="armv7l"),
    IdWords("ppc64le", ("ppc64le",), system="ppc64le"),
    IdWords("riscv64", ("riscv64",), system="riscv64"),
    IdWords("s390x", ("s390x",), system="s390x"),
    IdWords(r"(?:x86-64|amd64|x64)", ("x86-64", "amd64", "x64"), system="x86_64"),
)
"""Words that imply hardware; of several accelerators in one id the first row counts."""
_COUNTED = r"(?:(?P<before>\d{1,2})(?:x-?)?)?PATTERN(?:SUFFIX)?(?:-?x(?P<after>[1-9]|1[0-6]))?"
_SUFFIX = r"pcie|sxm\d?|nvl\d{0,2}|hbm\d?|gpus?|box|host|node|vm|s"
"""Suffixes that may follow a model within one word, as in ``a100sxm4``."""


@dataclass(frozen=True, slots=True)
class ImpliedHardware:
    """The hardware that a platform's id implies; fields are empty if it implies none."""

    device: str = ""
    """Words of the accelerator's name."""
    count: int = 0
    """Minimum number of these accelerators; 0 if the id has no number."""
    system: str = ""
    """Words of the operating system and the CPU's architecture."""
    provider: str = ""


def id_promise(name: str) -> ImpliedHardware:
    """Return the hardware that the words of a platform's id imply."""
    text = re.sub(r"[^a-z0-9]+", "-", name.lower())
    device, count, system = "", 0, []
    for row in ID_WORDS:
        body = row.pattern
        if row.device:
            body = _COUNTED.replace("PATTERN", row.pattern).replace("SUFFIX", _SUFFIX)
        found = re.search(rf"(?<![^-]){body}(?![^-])", text)
        if found is None:
            continue
        if row.system:
            system.append(row.system)
        elif not device:
            groups = [group for group in found.groups()[1:-1] if group]
            named = _expanded(row.device, groups)
            device = NAMES.get(named.lower(), named)
            count = int(found["before"] or found["after"] or 0)
    return ImpliedHardware(device, count, " ".join(system))


def _expanded(template: str, groups: list[str]) -> str:
    for number, group in enumerate(groups, start=1):
        template = template.replace(f"\\{number}", group.upper())
    return template


@dataclass(frozen=True, slots=True)
class InstanceDevice:
    """The verified accelerator of an instance type."""

    name: str
    compute_capability: str = ""


INSTANCE_DEVICES: Mapping[str, InstanceDevice] = {
    "g4dn.xlarge": InstanceDevice("Tesla T4", "7.5"),
    "g5.xlarge": InstanceDevice("NVIDIA A10G", "8.6"),
    "g6.xlarge": InstanceDevice("NVIDIA L4", "8.9"),
    "g6e.xlarge": InstanceDevice("NVIDIA L40S", "8.9"),
    "p4d.24xlarge": InstanceDevice("NVIDIA A100-SXM4-40GB", "8.0"),
    "p4de.24xlarge": InstanceDevice("NVIDIA A100-SXM4-80GB", "8.0"),
    "p5.4xlarge": InstanceDevice("NVIDIA H100 80GB HBM3", "9.0"),
    "p5.48xlarge": InstanceDevice("NVIDIA H100 80GB HBM3", "9.0"),
    "g2-standard-4": InstanceDevice("NVIDIA L4", "8.9"),
    "g2-standard-8": InstanceDevice("NVIDIA L4", "8.9"),
    "g2-standard-12": InstanceDevice("NVIDIA L4", "8.9"),
    "v5litepod-1": InstanceDevice("TPU v5e"),
    "v5litepod-4": InstanceDevice("TPU v5e"),
    "v5litepod-8": InstanceDevice("TPU v5e"),
}
"""Verified accelerators by instance type (for TPUs, by accelerator type)."""

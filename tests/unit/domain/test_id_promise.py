"""What the words of a platform's id promise; the list of policy.md is the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.domain.accelerators import ID_WORDS, ImpliedHardware, id_promise

POLICY = Path(__file__).resolve().parents[3] / "docs/reference/policy.md"


@pytest.mark.parametrize(
    ("platform", "device", "count", "system"),
    [
        ("h100x8", "H100", 8, ""),
        ("l4x4", "L4", 4, ""),
        ("8x-h100", "H100", 8, ""),
        ("a100-x4", "A100", 4, ""),
        ("rtx-4090", "RTX 4090", 0, ""),
        ("rtx4070ti", "RTX 4070", 0, ""),
        ("rtx_6000_ada", "RTX 6000", 0, ""),
        ("rtx6000", "RTX 6000", 0, ""),
        ("gtx1080", "GTX 1080", 0, ""),
        ("gh200", "GH200", 0, ""),
        ("a10", "A10", 0, ""),
        ("rack-a10g", "A10G", 0, ""),
        ("k80", "K80", 0, ""),
        ("p100", "P100", 0, ""),
        ("arc-a770", "A770", 0, ""),
        ("mi210", "MI210", 0, ""),
        ("mi300", "AMD", 0, ""),
        ("mi300x", "MI300X", 0, ""),
        ("max1550", "MAX 1550", 0, ""),
        ("trn1", "Trainium", 0, ""),
        ("inf2", "Inferentia", 0, ""),
        ("gaudi2", "Gaudi", 0, ""),
        ("nvidia-box", "NVIDIA", 0, ""),
        ("cuda12", "NVIDIA", 0, ""),
        ("my-tpu", "TPU", 0, ""),
        ("tpu-v4", "TPU V4", 0, ""),
        ("tpu-v6e", "TPU v6e", 0, ""),
        ("gpu-x2", "GPU", 2, ""),
        ("windows", "", 0, "Windows"),
        ("win11-x64", "", 0, "Windows x86_64"),
        ("macos-arm64", "", 0, "macOS aarch64"),
        ("macos14", "", 0, "macOS"),
        ("ubuntu-24-04-gpu", "GPU", 0, "Linux"),
        ("linux-x86_64", "", 0, "Linux x86_64"),
        ("aws-graviton", "", 0, "aarch64"),
        ("apple-silicon", "", 0, "macOS aarch64"),
        ("freebsd", "", 0, "FreeBSD"),
        ("jetson-orin", "NVIDIA", 0, ""),
        ("linux-cu128", "NVIDIA", 0, "Linux"),
        ("rx7900", "AMD", 0, ""),
        ("titan-v", "TITAN V", 0, ""),
        ("trillium", "TPU v6e", 0, ""),
        ("tpu7x", "TPU", 0, ""),
        ("mps-box", "Apple", 0, ""),
        ("2gpu", "GPU", 2, ""),
        ("8h100", "H100", 8, ""),
        ("h100pcie", "H100", 0, ""),
        ("a100sxm4", "A100", 0, ""),
        ("a100sxm4x8", "A100", 8, ""),
        ("h100s", "H100", 0, ""),
        ("l4gpu", "L4", 0, ""),
        ("l40s", "L40S", 0, ""),
        ("gpu0", "GPU", 0, ""),
        ("my_gpu2", "GPU", 0, ""),
        ("cudabox", "NVIDIA", 0, ""),
        ("hopper-node", "NVIDIA", 0, ""),
        ("hopper", "NVIDIA", 0, ""),
        ("ampere", "NVIDIA", 0, ""),
        ("blackwell1", "NVIDIA", 0, ""),
        ("tesla", "NVIDIA", 0, ""),
        ("tesla-t4", "T4", 0, ""),
        ("ampere-a100", "A100", 0, ""),
        ("dgxh100", "H100", 0, ""),
        ("dgx-h100", "H100", 0, ""),
        ("hgxb300", "B300", 0, ""),
        ("5090", "RTX 5090", 0, ""),
        ("lab-3080ti", "RTX 3080", 0, ""),
        ("v5litepod-1", "TPU v5e", 0, ""),
        ("v5p-8", "TPU v5p", 0, ""),
        ("v4-8", "TPU", 0, ""),
        ("arm-box", "", 0, "aarch64"),
        ("armv8", "", 0, "aarch64"),
        # Words that are also other things promise nothing.
        ("local-cpu", "", 0, ""),
        ("rack-1", "", 0, ""),
        ("no-gpu", "", 0, ""),
        ("py311", "", 0, ""),
        ("ampere-altra", "", 0, ""),
        ("ampereone", "", 0, ""),
        ("python-v3-8", "", 0, ""),
        ("v2-1", "", 0, ""),
        ("port-5000", "", 0, ""),
        ("arc-runner", "", 0, ""),
        ("amd-epyc", "", 0, ""),
        ("suite-v4", "", 0, ""),
        ("windward", "", 0, ""),
        ("army", "", 0, ""),
        ("no-gpu0", "", 0, ""),
        ("t4g-small", "", 0, ""),
    ],
)
def test_words_of_an_id(platform: str, device: str, count: int, system: str):
    assert id_promise(platform) == ImpliedHardware(device, count, system)


def test_policy_md_lists_the_words():
    text = POLICY.read_text("utf-8")
    listed = set(re.findall(r"`([^`\n]+)`", text))
    for row in ID_WORDS:
        assert listed.issuperset(row.examples), f"policy.md lacks {row.examples}"
        for example in row.examples:
            assert id_promise(example) != ImpliedHardware()

"""What jobs are called: ids and titles from the names of files and test modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

ID_LIMIT = 64
_ACRONYMS = {
    word.lower(): word
    for word in (
        "AMD", "AMP", "API", "BERT", "CLI", "CPU", "CUDA", "DDP", "FP8", "FP16", "FP32", "FSDP",
        "FlashAttention", "FlexAttention", "GCP", "AWS", "GPT", "GPU", "HIP", "INT8", "Intel",
        "JIT", "KV", "LLM", "MLP", "MoE", "NCCL", "NVIDIA", "ONNX", "PyTorch", "ROCm", "SDPA",
        "TPU", "XLA", "XPU", "A10G", "L4", "T4", "H100", "A100", "BF16", "TF32", "E2E", "IO",
    )
}  # fmt: skip
_PAIRS = {
    "Flex Attention": "FlexAttention",
    "Flash Attention": "FlashAttention",
    "Py Torch": "PyTorch",
}
_SUFFIXES = re.compile(r"(?:\.(?:gz|txt|log|out|jsonl?|xml|ya?ml|csv|md))+$", re.IGNORECASE)
_STRANGE = re.compile(r"[^A-Za-z0-9]+")


def artifact_id(name: str) -> str:
    """The id of a job that is named after its artifact."""
    return _identifier(_SUFFIXES.sub("", PurePosixPath(name).name))


def module_id(module: str, *, parents: int = 0) -> str:
    """The id of a suite that is named after its test module, with folders above it if need be."""
    parts = list(PurePosixPath(module).parts)
    stem = re.sub(r"\.(?:py|md|rst|txt|ipynb)$", "", parts[-1] if parts else module)
    stem = re.sub(r"^tests?_|_tests?$", "", stem) or stem
    above = parts[-1 - parents : -1] if parents else []
    return _identifier("-".join([*above, stem]))


def title_of(job: str) -> str:
    """``fp8-native`` as people write it: FP8 Native."""
    words = [_ACRONYMS.get(word.lower(), word.capitalize()) for word in re.split("[-_]+", job)]
    title = " ".join(word for word in words if word)
    for apart, together in _PAIRS.items():
        title = title.replace(apart, together)
    return title or job


def unused(wanted: str, is_free: Callable[[str], bool]) -> str:
    """The id, or the id with the first number that makes it free."""
    name, number = wanted, 1
    while not is_free(name):
        number += 1
        end = f"-{number}"
        name = wanted[: ID_LIMIT - len(end)] + end
    return name


def _identifier(text: str) -> str:
    found = _STRANGE.sub("-", text).strip("-").lower()[:ID_LIMIT].rstrip("-")
    return found or "unnamed"

"""A pytest plugin: this interpreter becomes that of a bare image, with torch, numpy and pytest."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

OPTIONAL = frozenset(
    {
        "accelerate",
        "apex",
        "deepspeed",
        "liger_kernel",
        "matplotlib",
        "ml_dtypes",
        "onnx",
        "onnx_ir",
        "onnxruntime",
        "onnxscript",
        "pandas",
        "psutil",
        "pynvml",
        "safetensors",
        "scipy",
        "torch_xla",
        "torchao",
        "torchaudio",
        "torchvision",
        "transformers",
        "triton",
    }
)


class _Absent:
    """Finds nothing of these packages, wherever they are installed."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def _find_spec(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
    return None if name.split(".")[0] in OPTIONAL else _REAL(name, package)


_REAL = importlib.util.find_spec
importlib.util.find_spec = _find_spec
sys.meta_path.insert(0, _Absent())

"""Enumerations of the configuration; their members are strings, so `"aggressive"` is accepted."""

from __future__ import annotations

from enum import Enum


def _words(name: str, meaning: str, values: str) -> type[Enum]:
    """Create an enum of strings whose member names are their values in upper case."""
    members = {value.upper(): value for value in values.split()}
    made = Enum(name, members, type=str, module=__name__)
    made.__doc__ = meaning
    return made


OptimizationLevel = _words(
    "OptimizationLevel",
    "How far `prepare_model` goes: each level does what the one before it does, and more.",
    "conservative balanced aggressive",
)
HardwareBackend = _words(
    "HardwareBackend",
    "Whose device computes.",
    "cuda cpu tpu amd intel",
)
NVIDIAArchitecture = _words(
    "NVIDIAArchitecture",
    "By compute capability: 6.x, 7.0, 7.5, 8.0 to 8.7, 8.9, 9.0, 10.0 and later.",
    "auto pascal volta turing ampere ada hopper blackwell",
)
TPUVersion = _words("TPUVersion", "Google's generations.", "auto v4 v5e v5p v6e v7")
TPUTopology = _words(
    "TPUTopology", "One host, a slice over several, or several slices.", "auto single pod superpod"
)
TPUCompilationMode = _words(
    "TPUCompilationMode", "Who hands the graph to XLA.", "xla pjit torch_xla"
)
AMDArchitecture = _words(
    "AMDArchitecture",
    "By the compiler's target: gfx908, gfx90a, gfx942, gfx950, gfx103x, gfx110x, gfx120x.",
    "auto cdna cdna2 cdna3 cdna4 rdna2 rdna3 rdna4",
)
IntelArchitecture = _words(
    "IntelArchitecture",
    "Intel's GPUs: data centre (pvc, ats, flex), desktop (dg2), part of the processor.",
    "auto pvc ats dg2 flex integrated",
)
PrecisionFormat = _words("PrecisionFormat", "What a backend stores a model in.", "fp32 bf16")
ValidationLevel = _words(
    "ValidationLevel",
    "How much is checked: each level checks what the one before it does, and more.",
    "minimal standard strict comprehensive",
)

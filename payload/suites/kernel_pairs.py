"""The kernels' specimens and the chips that they are compiled for, pair by pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from suites.kernel_chips import TARGETS, Compiled, Target, linker_missing
from suites.specimens import SPECIMENS, Specimen
from torchbridge.kernels import REGISTRY, KernelRefused, Request

NATIVE_FLOAT8 = {  # the encoding of e4m3 that a chip converts to in one instruction
    "sm_89": ("e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
    "sm_90": ("e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
    "sm_100": ("e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
    "gfx942": ("e4m3fnuz", "v_cvt_pk_fp8_f32"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A specimen of a module, and a target."""

    module: str
    specimen: Specimen
    target: Target

    def __str__(self) -> str:
        return f"{self.module}.{self.specimen}-{self.target}"

    @property
    def request(self) -> Request:
        """What the dispatcher is asked."""
        one = self.specimen
        return Request(self.target.hardware, one.dtype, one.gradient, one.variant)

    @property
    def reason(self) -> str | None:
        """Why our dispatcher refuses it."""
        try:
            REGISTRY.named(self.specimen.operation, "triton", self.request)
        except KernelRefused as refused:
            return str(refused)
        return None

    @property
    def lacks(self) -> bool:
        """By this suite's own table: has the chip no instruction for it?"""
        one, capability = self.specimen, self.target.hardware.capability
        native = NATIVE_FLOAT8.get(self.target.name, ("",))[0]
        if one.variant.startswith("e4m3") and one.variant != native:
            return True
        return bool(one.needs and capability and capability < one.needs)


def all_pairs() -> list[Pair]:
    """Of all modules, but those that a launcher's table has not."""
    return [
        Pair(module, specimen, target)
        for target in TARGETS.values()
        for module, specimens in SPECIMENS.items()
        for specimen in specimens
        if not specimen.targets or target.name in specimen.targets
    ]


PAIRS = all_pairs()


def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what Triton keeps, in place of the user's: the work of a fixture."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("triton")
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        yield folder


def link(target: Target) -> None:
    """Skip where Triton lacks a linker."""
    reason = linker_missing(target)
    if reason:
        pytest.skip(reason)


def assert_fits(made: Compiled, target: Target) -> None:
    """Within the chip's limits, everything in registers."""
    assert made.spills == 0, f"{made.spills} spilled, {made.registers} registers"
    assert 0 <= made.shared <= target.shared_bytes
    assert 0 <= made.tensor_columns <= target.tensor_columns
    assert made.registers > 0

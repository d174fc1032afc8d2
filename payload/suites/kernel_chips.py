"""The seven chips that kernels are compiled for without a device, and pairs of kernel and chip.

The compilers report registers, spills and matrix instructions.
"""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from suites.specimens import SPECIMENS, Specimen
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, KernelRefused, Request

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A chip to compile for.

    `shared_bytes` is the limit of shared memory per block (LDS on AMD), `warp` the number of
    threads per warp. `instructions` are the chip's matrix instructions, its newest first; the older
    ones serve tiles that are too narrow for the newest. `tensor_columns` is the size of tensor
    memory, 0 if the chip has none.
    """

    hardware: Hardware
    shared_bytes: int
    warp: int
    instructions: tuple[str, ...]
    tensor_columns: int = 0

    @property
    def name(self) -> str:
        """The compiler's name of the chip: sm_90, gfx942."""
        return self.hardware.target

    @property
    def arch(self) -> int | str:
        """Triton's name of the architecture: 90, gfx942."""
        major, minor = self.hardware.capability or (0, 0)
        return 10 * major + minor if self.hardware.vendor == "nvidia" else self.name

    def __str__(self) -> str:
        return self.name


def _nvidia(capability: tuple[int, int], kib: int, *instructions: str, columns: int = 0) -> Target:
    return Target(Hardware.nvidia(capability), kib * KIB, 32, instructions, columns)


def _amd(name: str, kib: int) -> Target:
    return Target(Hardware.amd(name), kib * KIB, 64, ("mfma",))


# NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", maximum
# amount of shared memory per thread block; PTX ISA, "Warp Level Matrix Multiply-Accumulate" (mma),
# "Asynchronous Warpgroup Level ..." (wgmma), "TensorCore 5th Generation" (tcgen05; tensor memory of
# 512 columns). AMD: "HIP hardware features", LDS per compute unit; CDNA2 and CDNA3 ISA (MFMA).
_ALL = (
    _nvidia((8, 0), 163, "mma.sync"),
    _nvidia((8, 6), 99, "mma.sync"),
    _nvidia((8, 9), 99, "mma.sync"),
    _nvidia((9, 0), 227, "wgmma.mma_async", "mma.sync"),
    _nvidia((10, 0), 227, "tcgen05.mma", "mma.sync", columns=512),
    _amd("gfx90a", 64),
    _amd("gfx942", 64),
)
TARGETS = {target.name: target for target in _ALL}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel compiled for a chip.

    `asm` has the code of each of Triton's stages by name (ptx, cubin, amdgcn, hsaco ...); `shared`
    is in bytes; `spills` are the bytes of spill stores and loads on NVIDIA, and the spilled
    registers on AMD; `instructions` are the target's matrix instructions that occur in the code.
    """

    asm: Mapping[str, Any]
    shared: int
    spills: int
    registers: int  # per thread
    instructions: tuple[str, ...]
    tensor_columns: int = 0


class TargetRefused(RuntimeError):
    """Triton cannot compile the kernel for the target; the message is Triton's."""


def compile_for(specimen: Specimen, target: Target) -> Compiled:
    """Compile a specimen for a target, without a device.

    Raises:
        TargetRefused: Triton or the chip's assembler reports an error.
        ImportError: Triton is not installed.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    backend = "cuda" if target.hardware.vendor == "nvidia" else "hip"
    options = {"num_warps": specimen.num_warps, "num_stages": specimen.num_stages}
    source, where = _source(specimen), GPUTarget(backend, target.arch, target.warp)
    try:
        made = triton.compile(source, target=where, options=options)
    except Exception as error:  # Triton's own kinds differ between its versions
        raise TargetRefused(f"{specimen.name} for {target.name}: {_first(error)}") from error
    text = made.asm["ptx" if backend == "cuda" else "amdgcn"]
    spills, registers = _nvidia_report(text, target) if backend == "cuda" else _amd_report(text)
    found = tuple(one for one in target.instructions if one in text)
    columns = getattr(made.metadata, "tmem_size", 0) or 0
    return Compiled(made.asm, made.metadata.shared, spills, registers, found, columns)


def linker_missing(target: Target) -> str | None:
    """Return why Triton cannot link for `target`; None if it can.

    Some versions of Triton need ROCm's linker for AMD.
    """
    if target.hardware.vendor != "amd":
        return None
    compiler = importlib.import_module("triton.backends.amd.compiler").HIPBackend
    try:
        getattr(compiler, "path_to_rocm_lld", str)()
    except Exception as error:  # Triton raises the bare type
        return f"Triton has no linker for AMD: {error}"
    return None


def _source(specimen: Specimen) -> Any:
    from triton.compiler import ASTSource

    names, constants = specimen.kernel.arg_names, dict(specimen.constexprs)
    given = {**specimen.signature, **dict.fromkeys(constants, "constexpr")}
    if sorted(given) != sorted(names):
        raise ValueError(f"{specimen.name} is given {sorted(given)}, its kernel takes {names}")
    sixteen = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(names)
        if name not in specimen.odd and given[name].startswith(("*", "i"))
    }
    signature = {name: given[name] for name in names}
    return ASTSource(fn=specimen.kernel, signature=signature, constexprs=constants, attrs=sixteen)


def _first(error: BaseException) -> str:
    """Return the messages of an error and its causes, on one line."""
    told, at = [], error
    while at is not None and at not in told:
        told.append(at)
        at = at.__cause__
    return "; ".join(" ".join(str(one).split()) for one in told)


def _nvidia_report(ptx: str, target: Target) -> tuple[int, int]:
    """Return the spilled bytes and the registers, as reported by Triton's ptxas."""
    chip = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx, "utf-8")
        command = [_ptxas(target), "-v", f"--gpu-name={chip[1] if chip else target.name}"]
        command += [str(source), "-o", str(Path(folder, "kernel.cubin"))]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise TargetRefused(f"ptxas for {target.name}: {done.stderr.strip()}")
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr)))
    return spilled, _largest(r"Used (\d+) registers", done.stderr)


def _ptxas(target: Target) -> str:
    find = importlib.import_module("triton.backends.nvidia.compiler").get_ptxas
    tool = find(target.arch) if inspect.signature(find).parameters else find()
    return tool[0] if isinstance(tool, tuple) else tool.path


def _amd_report(amdgcn: str) -> tuple[int, int]:
    """Return the spilled registers and the vector registers, from the metadata in the code."""
    spilled = re.findall(r"\.[vs]gpr_spill_count:\s*(\d+)", amdgcn)
    if not spilled:
        raise TargetRefused("the code has no metadata that tells of spills")
    return sum(map(int, spilled)), _largest(r"\.vgpr_count:\s*(\d+)", amdgcn)


def _largest(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    if not found:
        raise TargetRefused(f"the assembler does not tell {pattern!r}")
    return max(map(int, found))


NATIVE_FLOAT8 = {  # e4m3 format and its conversion instruction, by chip
    "sm_89": ("e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
    "sm_90": ("e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
    "sm_100": ("e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
    "gfx942": ("e4m3fnuz", "v_cvt_pk_fp8_f32"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A specimen of a module, and a target to compile it for."""

    module: str
    specimen: Specimen
    target: Target

    def __str__(self) -> str:
        return f"{self.module}.{self.specimen}-{self.target}"

    @property
    def request(self) -> Request:
        """The request for the dispatcher."""
        one = self.specimen
        return Request(self.target.hardware, one.dtype, one.gradient, one.variant)

    @property
    def reason(self) -> str | None:
        """Why the dispatcher refuses the pair; None if it accepts it."""
        try:
            REGISTRY.named(self.specimen.operation, "triton", self.request)
        except KernelRefused as refused:
            return str(refused)
        return None

    @property
    def lacks(self) -> bool:
        """Whether the chip lacks an instruction for the specimen, by the suite's own table."""
        one, capability = self.specimen, self.target.hardware.capability
        native = NATIVE_FLOAT8.get(self.target.name, ("",))[0]
        if one.variant.startswith("e4m3") and one.variant != native:
            return True
        return bool(one.needs and capability and capability < one.needs)


def all_pairs() -> list[Pair]:
    """Return all pairs of a target and a specimen that the launcher's table has for it."""
    return [
        Pair(module, specimen, target)
        for target in TARGETS.values()
        for module, specimens in SPECIMENS.items()
        for specimen in specimens
        if not specimen.targets or target.name in specimen.targets
    ]


PAIRS = all_pairs()


def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set Triton's cache folder to an empty one, and yield it; for use in a fixture."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("triton")
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        yield folder


def link(target: Target) -> None:
    """Skip the test if Triton lacks the target's linker."""
    reason = linker_missing(target)
    if reason:
        pytest.skip(reason)


def assert_fits(made: Compiled, target: Target) -> None:
    """Check that the kernel is within the chip's limits and spills no registers."""
    assert made.spills == 0, f"{made.spills} spilled, {made.registers} registers"
    assert 0 <= made.shared <= target.shared_bytes
    assert 0 <= made.tensor_columns <= target.tensor_columns
    assert made.registers > 0

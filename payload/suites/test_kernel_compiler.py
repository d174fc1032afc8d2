"""The compiler of kernels for absent chips, and what its measurements must detect."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from suites.interpreter import needs_triton
from suites.kernel_chips import (
    PAIRS,
    TARGETS,
    TargetRefused,
    assert_fits,
    cache_folder,
    compile_for,
    link,
)
from suites.specimens import SPECIMENS, Specimen
from torchbridge import kernels
from torchbridge.kernels import REGISTRY

FOLDER = Path(kernels.__file__).parent
pytestmark = needs_triton


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Set Triton's cache folder to an empty one, and yield it."""
    yield from cache_folder(tmp_path_factory)


class TestCoverage:
    def test_every_module_with_a_kernel_has_specimens(self):
        known = SPECIMENS
        launched = launched_kernels()
        assert set(launched) == set(known)
        assert len(known) >= 3
        for name, specimens in known.items():
            assert {one.kernel.__name__ for one in specimens} == launched[name], name

    def test_names_are_unique(self):
        for module, specimens in SPECIMENS.items():
            names = [one.name for one in specimens]
            assert len(names) == len(set(names)), module

    def test_every_kernel_is_compiled_for_every_target(self):
        kernels = {(pair.module, pair.specimen.kernel.__name__) for pair in PAIRS}
        for target in TARGETS.values():
            met = {(p.module, p.specimen.kernel.__name__) for p in PAIRS if p.target is target}
            assert met == kernels, target.name

    def test_every_plan_of_the_table_is_a_specimen(self):
        from torchbridge.kernels.quantise import WIDEST, plan

        made = {
            (one.kernel.__name__, one.constexprs["height"], one.constexprs["block"], one.num_warps)
            for one in SPECIMENS["quantise"]
        }
        for width in (1, 64, 128, 129, 768, 1024, 1025, 4096, 8192, 8193, 16384, 16385, 10**6):
            how = plan(width)
            assert (f"quantise{'_wide' * how.wide}", how.height, how.block, how.warps) in made
            assert how.wide == (width > WIDEST)
            assert how.wide or how.block // 2 < width or how.block == 128 or width < 512

    def test_tiles_are_of_the_rows_and_specimens(self):
        from torchbridge.kernels import experts, grouped
        from torchbridge.kernels.tiles import pick_tiles

        for module, name, fewest in ((experts, "experts", 16), (grouped, "grouped", 128)):
            compiled = {
                (one.constexprs["block_m"], one.constexprs["block_n"], one.num_warps)
                for one in SPECIMENS[name]
                if "block_k" in one.constexprs
            }
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for rows in (1, 16, 17, 128, 129, 5000):
                    found = pick_tiles(module.TABLE, dtype, rows)
                    assert (found.m, found.n, found.warps) in compiled
                    assert found.bits == dtype.itemsize * 8
                    few = any(one.rows and one.bits == found.bits for one in module.TABLE)
                    assert (found.rows == fewest) == (few and rows <= fewest)
        with pytest.raises(ValueError, match=r"no tiles for 2 rows of torch.float64"):
            pick_tiles(experts.TABLE, torch.float64, 2)

    def test_dtypes_are_those_of_the_registry(self):
        for specimens in SPECIMENS.values():
            operations = {one.operation for one in specimens}
            for operation in operations:
                kernel = next(k for k in REGISTRY.kernels(operation) if k.name == "triton")
                found = {one.dtype for one in specimens}
                assert found >= kernel.dtypes > set(), operation


class TestCompiler:
    """The measurements detect kernels that are written to exceed each limit."""

    @pytest.mark.parametrize("target", TARGETS.values(), ids=str)
    def test_matrix_instruction_is_found(self, target, cache):
        from suites.triton_kernels import product_of

        link(target)
        made = compile_for(product_of(64, 32), target)
        assert target.instructions[0] in made.instructions
        assert_fits(made, target)

    @pytest.mark.parametrize(("name", "block"), [("sm_90", 16384), ("gfx942", 32768)])
    def test_spills_are_counted(self, name, block, cache):
        from suites.triton_kernels import crowded

        link(TARGETS[name])
        made = compile_for(crowded(block), TARGETS[name])
        assert made.spills > 100
        with pytest.raises(AssertionError, match="spilled"):
            assert_fits(made, TARGETS[name])

    def test_a_row_is_read_before_it_is_overwritten(self, cache):
        """The kernel's barrier is between reading a row and overwriting it.

        The barriers that the compiler adds come later, and are for other memory.
        """
        specimen = next(one for one in SPECIMENS["cross_entropy"] if one.gradient)
        text = compile_for(specimen, TARGETS["sm_90"]).asm["ttir"]
        read, barrier = text.index("tt.load"), text.index("barrier")
        assert read < barrier < text.index("tt.store")
        assert text.count("tt.load", barrier) > 0

    @pytest.mark.parametrize("name", ["sm_86", "gfx90a"])
    def test_shared_memory_over_the_limit_is_seen(self, name, cache):
        from suites.triton_kernels import product_of

        link(TARGETS[name])
        made = compile_for(product_of(128, 64, num_stages=5), TARGETS[name])
        assert made.spills == 0
        assert made.shared > TARGETS[name].shared_bytes

    def test_a_missing_argument_is_named(self):
        from suites.triton_kernels import product_of

        whole = product_of(64, 32)
        del (types := dict(whole.signature))["depth"]
        partial = Specimen("partial", whole.kernel, types, whole.constexprs)
        with pytest.raises(ValueError, match=r"partial is given .* its kernel takes"):
            compile_for(partial, TARGETS["sm_80"])

    def test_what_does_not_compile_is_refused_with_tritons_words(self, cache):
        from suites.triton_kernels import product_of

        with pytest.raises(TargetRefused, match=r"product-48x32 for sm_80: .*power of 2"):
            compile_for(product_of(48, 32), TARGETS["sm_80"])

    def test_triton_is_not_interpreted_here(self):
        import triton

        from suites.triton_kernels import scale

        assert isinstance(scale, triton.JITFunction)


def launched_kernels() -> dict[str, set[str]]:
    """Return the names of the package's triton.jit functions by module.

    Functions that another kernel calls are left out.
    """
    sources = {path.stem: ast.parse(path.read_text("utf-8")) for path in FOLDER.glob("*.py")}
    marked = {name: kernels_in(tree) for name, tree in sources.items()}
    called = {
        ast.unparse(call.func).rpartition(".")[2]
        for kernels in marked.values()
        for kernel in kernels
        for call in ast.walk(kernel)
        if isinstance(call, ast.Call)
    }
    names = {module: {one.name for one in kernels} for module, kernels in marked.items()}
    return {module: kernels - called for module, kernels in names.items() if kernels - called}


def kernels_in(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return a module's functions that are decorated with triton.jit."""
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    return [one for one in functions if any("jit" in ast.unparse(d) for d in one.decorator_list)]

"""The compiler of kernels for chips that are not here, what it must see, and what is dispatched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from suites.interpreter import needs_triton
from suites.kernel_chips import TARGETS, TargetRefused, compile_for
from suites.kernel_pairs import PAIRS, assert_fits, cache_folder, link
from suites.specimens import SPECIMENS, Specimen
from torchbridge import kernels
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, KernelRefused, Request, registry
from torchbridge.kernels.tiles import rows_variant

FOLDER = Path(kernels.__file__).parent
pytestmark = needs_triton


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where Triton keeps what it compiled."""
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

    @pytest.mark.parametrize("target", ["sm_86", "sm_90", "gfx942", "sm_120", ""])
    def test_tiles_are_of_the_rows_and_specimens(self, target):
        from torchbridge.kernels import experts, gated
        from torchbridge.kernels.tiles import pick_tiles

        for module, name in ((gated, "gated"), (experts, "experts")):
            compiled = {
                (one.constexprs["block_m"], one.constexprs["block_n"], one.num_warps)
                for one in SPECIMENS[name]
                if "block_k" in one.constexprs
            }
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for rows in (1, 16, 17, 64, 65, 5000):
                    found = pick_tiles(module.TABLE, target, dtype, rows)
                    assert (found.m, found.n, found.warps) in compiled
                    assert found.bits == dtype.itemsize * 8
                    assert (found.m == 16) == (rows <= 16)
        small, large = (pick_tiles(gated.TABLE, t, dtype, 999) for t in ("sm_86", "sm_90"))
        assert (small.stages, large.stages) == (3, 4)  # what needs room is where there is room
        with pytest.raises(ValueError, match=r"no tiles for 2 rows of torch.float64 on sm_90"):
            pick_tiles(experts.TABLE, "sm_90", torch.float64, 2)

    def test_dtypes_are_those_of_the_registry(self):
        for specimens in SPECIMENS.values():
            operations = {one.operation for one in specimens}
            for operation in operations:
                kernel = next(k for k in REGISTRY.kernels(operation) if k.name == "triton")
                found = {one.dtype for one in specimens}
                assert found >= kernel.dtypes > set(), operation


class TestCompiler:
    """That the measures tell what they are taken for: kernels made to break each limit."""

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
        """The barrier that the kernel asks for; the compiler's own come later, for other memory."""
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


class TestDispatch:
    @pytest.mark.parametrize("operation", ["gated_linear", "grouped_mm", "linear_cross_entropy"])
    def test_old_and_other_chips_are_refused(self, operation):
        turing, rdna = Hardware.nvidia((7, 5)), Hardware.amd("gfx1100")
        for hardware, reason in (
            (turing, "needs sm_80; this is sm_75"),
            (rdna, "is built for gfx90a and gfx942; this is gfx1100"),
            (Hardware.tpu("v5litepod-8"), "needs amd or nvidia; this is google"),
            (Hardware.cpu(), "needs amd or nvidia; this is cpu"),
        ):
            with pytest.raises(KernelRefused, match=reason):
                REGISTRY.named(operation, "triton", Request(hardware))
            assert REGISTRY.lookup(operation, Request(hardware)).kernel.name == "torch"

    @pytest.mark.parametrize("operation", ["gated_linear", "moe_experts", "linear_cross_entropy"])
    def test_dtypes_that_do_not_fit_are_refused(self, operation):
        hopper = Hardware.nvidia((9, 0))
        for request, reason in (
            (Request(hopper, torch.float64), "does not compute float64"),
            (Request(hopper, variant="mixed dtypes"), "must have one dtype"),
        ):
            with pytest.raises(KernelRefused, match=reason):
                REGISTRY.named(operation, "triton", request)
            assert REGISTRY.lookup(operation, request).kernel.name == "torch"

    @pytest.mark.parametrize("operation", ["gated_linear", "moe_experts"])
    def test_few_rows_in_triton_many_by_the_library(self, operation):
        hopper, bf16 = Hardware.nvidia((9, 0)), torch.bfloat16
        for hardware, dtype, rows, taken in (
            (hopper, bf16, 64, "triton"),
            (hopper, bf16, 65, "torch"),
            (Hardware.amd("gfx942"), bf16, 65, "torch"),
            (hopper, torch.float32, 16, "triton"),
            (hopper, torch.float32, 17, "torch"),
            (Hardware.amd("gfx942"), torch.float32, 64, "triton"),
        ):
            for experts in (1, 8):
                request = Request(hardware, dtype, variant=rows_variant(experts * rows, experts))
                assert REGISTRY.lookup(operation, request).kernel.name == taken
        many = Request(hopper, bf16, variant=rows_variant(65))
        told = {"triton": "for more than 64 rows the library multiplies faster"}
        assert REGISTRY.lookup(operation, many).refused == told
        learns = Request(hopper, bf16, gradient=True)
        assert REGISTRY.lookup(operation, learns).refused == {"triton": "has no backward"}

    def test_what_tiles_are_slow_at_is_the_librarys(self):
        x, weight = torch.ones(2, 64), torch.ones(32, 64)
        odd, across = "widths are multiples of 16", "would be copied"
        for tensors, reason in (
            ((x, weight, None, weight[:, 0]), None),
            ((x[:, :40], weight[:, :40]), odd),
            ((x, torch.ones(32, 72)[:, :64]), odd),
            ((torch.ones(2, 72)[:, :64], weight), odd),
            ((x, weight.T.contiguous().T), across),
            ((x, weight, torch.ones(2, 64, 32).mT), across),
        ):
            request = Request(Hardware.nvidia((9, 0)), variant=rows_variant(2, 1, *tensors))
            choice = REGISTRY.lookup("gated_linear", request)
            assert (choice.kernel.name == "triton") == (reason is None)
            assert (reason or "") in choice.refused.get("triton", "")
            assert rows_variant(0, 1, *tensors) == ""  # traced: sizes are not looked at

    def test_sizes_are_asked_for_by_the_functions(self, monkeypatch):
        """A device's choices, on the CPU: where Triton were taken it would find no driver."""
        monkeypatch.setattr(registry, "hardware_of", lambda _: Hardware.nvidia((9, 0)))
        x, weight, experts = torch.ones(2, 40), torch.ones(64, 40), torch.zeros(2, 1).long()
        assert kernels.gated_linear(x, weight, weight).shape == (2, 64)
        given = (x, experts, torch.ones(2, 1), weight[None], torch.ones(1, 40, 64))
        assert kernels.moe_experts(*given).shape == (2, 40)

    def test_shapes_without_numbers(self):
        """Autocast does not answer for "meta"."""
        x = torch.empty(2, 8, device="meta", requires_grad=True)
        assert kernels.linear_gelu(x, x)[0].is_meta
        assert kernels.gated_linear(x, x, x).shape == (2, 2)
        loss = kernels.linear_cross_entropy(x, x, x[:, 0].long())
        assert torch.autograd.grad(loss, x)[0].shape == x.shape

    def test_triton_is_not_interpreted_here(self):
        import triton

        from suites.triton_kernels import scale

        assert isinstance(scale, triton.JITFunction)


def launched_kernels() -> dict[str, set[str]]:
    """The package's triton.jit functions by module, but those that other ones call."""
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
    """A module's functions that are marked triton.jit."""
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    return [one for one in functions if any("jit" in ast.unparse(d) for d in one.decorator_list)]

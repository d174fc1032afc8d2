"""The compiler of kernels for chips that are not here, what it must see, and what is dispatched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from suites.interpreter import needs_triton
from suites.kernel_chips import TARGETS, TargetRefused, compile_for
from suites.kernel_pairs import PAIRS, assert_fits, cache_folder, link
from suites.specimens import Specimen, all_specimens
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, KernelRefused, Request, functional, gpu

FOLDER = Path(gpu.__file__).parent
pytestmark = needs_triton


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where Triton keeps what it compiled."""
    yield from cache_folder(tmp_path_factory)


class TestCoverage:
    def test_seven_targets(self):
        names = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942"]
        assert list(TARGETS) == names
        assert [target.arch for target in TARGETS.values()] == [80, 86, 89, 90, 100, *names[5:]]

    def test_every_module_with_a_kernel_has_specimens(self):
        known = all_specimens()
        launched = launched_kernels()
        assert set(launched) == set(known)
        assert len(known) >= 3
        for name, specimens in known.items():
            assert {one.kernel.__name__ for one in specimens} == launched[name], name

    def test_names_are_unique(self):
        for module, specimens in all_specimens().items():
            names = [one.name for one in specimens]
            assert len(names) == len(set(names)), module

    def test_every_kernel_is_compiled_for_every_target(self):
        kernels = {(pair.module, pair.specimen.kernel.__name__) for pair in PAIRS}
        for target in TARGETS.values():
            met = {(p.module, p.specimen.kernel.__name__) for p in PAIRS if p.target is target}
            assert met == kernels, target.name

    def test_every_plan_of_the_tables_is_a_specimen(self):
        from torchbridge.kernels.gpu import norms, quantise, softmax
        from torchbridge.kernels.gpu.rows import plan

        widests = {
            (norms, "forward"): norms.FORWARD_WIDEST,
            (norms, "backward"): norms.BACKWARD_WIDEST,
            (softmax, "forward"): softmax.WIDEST,
            (softmax, "backward"): softmax.WIDEST,
            (quantise, "quantise"): quantise.WIDEST,
        }
        for (module, kernel), widest in widests.items():
            for width in (1, 64, 128, 129, 768, 1024, 1025, 4096, 8192, 8193, 16384, 16385, 10**6):
                how = plan(width, widest)
                wanted = (f"{kernel}{'_wide' * how.wide}", how.height, how.block, how.warps)
                name = module.__name__.rpartition(".")[2]
                assert wanted in {shape_of(one) for one in all_specimens()[name]}
                assert how.wide == (width > widest)
                assert how.wide or how.block // 2 < width or how.block == 128 or width < 512
        assert functional.NORM_WIDEST == norms.BACKWARD_WIDEST  # what "auto" goes by

    def test_dtypes_are_those_of_the_registry(self):
        for specimens in all_specimens().values():
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

    @pytest.mark.parametrize(
        ("name", "block", "warps"), [("sm_80", 4096, 2), ("sm_90", 4096, 2), ("gfx942", 8192, 1)]
    )
    def test_spills_are_counted(self, name, block, warps, cache):
        from suites.triton_kernels import compile_of

        link(TARGETS[name])
        whole = f"layer_norm-backward-1x{block}-bf16"
        crowded = compile_of("norms", whole, name, num_warps=warps)
        assert crowded.spills > 100
        with pytest.raises(AssertionError, match="spilled"):
            assert_fits(crowded, TARGETS[name])

    def test_a_row_is_read_before_it_is_overwritten(self, cache):
        """The barrier that the kernel asks for; the compiler's own come later, for other memory."""
        specimen = next(one for one in all_specimens()["cross_entropy"] if one.gradient)
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
    @pytest.mark.parametrize("operation", ["rms_norm", "layer_norm", "softmax"])
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

    def test_float64_is_the_librarys(self):
        request = Request(TARGETS["sm_90"].hardware, torch.float64)
        choice = REGISTRY.lookup("rms_norm", request)
        assert choice.kernel.name == "torch"
        assert choice.refused == {"triton": "does not compute float64"}

    @pytest.mark.parametrize("target", TARGETS.values(), ids=str)
    def test_what_auto_takes(self, target):
        def taken(operation: str, **how) -> str:
            request = Request(target.hardware, torch.bfloat16, **how)
            return REGISTRY.lookup(operation, request).kernel.name

        wide = {"variant": "wide rows"}
        for norm in ("rms_norm", "layer_norm"):
            assert taken(norm, gradient=True) == "triton"
            assert taken(norm, gradient=True, variant="mixed dtypes") == "torch"
        assert taken("layer_norm", gradient=True, **wide) == "torch"
        assert taken("layer_norm") == taken("softmax") == taken("softmax", gradient=True) == "torch"
        assert taken("softmax", **wide) == "triton"

    def test_rms_norm_forward_yields_where_torch_has_a_kernel(self, monkeypatch):
        request = Request(TARGETS["sm_90"].hardware)
        monkeypatch.setattr(functional, "_library_has_rms_norm", lambda: True)
        kernel = next(k for k in REGISTRY.kernels("rms_norm") if k.name == "triton")
        assert kernel.objection(request) == "torch's forward reads a row once, too"
        assert kernel.refusal(request) is None
        monkeypatch.setattr(functional, "_library_has_rms_norm", lambda: False)
        assert kernel.objection(request) is None


def shape_of(one: Specimen) -> tuple[str, int, int, int]:
    """Kernel, rows and numbers of a row for a program, warps."""
    sizes = one.constexprs
    return one.kernel.__name__, sizes["height"], sizes["block"], one.num_warps


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

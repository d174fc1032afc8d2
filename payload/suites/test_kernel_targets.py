"""Each variant of each Triton kernel, compiled for seven chips without a device.

A pair that the dispatcher refuses is compiled too, to check that Triton refuses it as well or that
the chip has no instruction for it and would emulate it.
"""

from __future__ import annotations

import pytest

from suites.interpreter import needs_triton
from suites.kernel_chips import (
    NATIVE_FLOAT8,
    PAIRS,
    TARGETS,
    Pair,
    TargetRefused,
    assert_fits,
    cache_folder,
    link,
    linker_missing,
)

SUPPORTED = [pair for pair in PAIRS if not pair.lacks]
REFUSED = [pair for pair in PAIRS if pair.lacks]
pytestmark = needs_triton


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Set Triton's cache folder to an empty one, and yield it."""
    yield from cache_folder(tmp_path_factory)


@pytest.fixture(scope="module")
def compiled(request, cache):
    """Return a function that returns the compiled kernel of a pair.

    All pairs of the run are started at once, in one process per core.
    """
    from suites.triton_kernels import Compilers

    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    pairs = [params["pair"] for params in chosen if isinstance(params.get("pair"), Pair)]
    compilers = Compilers(str(cache))
    begun = {
        str(pair): compilers.submit(pair.module, pair.specimen.name, pair.target.name)
        for pair in pairs
        if linker_missing(pair.target) is None
    }
    yield lambda pair: begun[str(pair)].result()
    compilers.close()


class TestSupportedPairs:
    @pytest.mark.parametrize("pair", SUPPORTED, ids=str)
    def test_compiles_within_the_limits(self, pair, compiled):
        link(pair.target)
        assert pair.reason is None
        made = compiled(pair)
        assert_fits(made, pair.target)
        assert bool(made.instructions) == pair.specimen.multiplies
        assert made.asm["ptx" if pair.target.hardware.vendor == "nvidia" else "amdgcn"]


class TestRefusedPairs:
    @pytest.mark.parametrize("pair", REFUSED, ids=str)
    def test_refused_with_a_reason_and_rightly(self, pair, compiled):
        link(pair.target)
        name = pair.target.name
        assert pair.reason.startswith(f"{pair.specimen.operation}/triton: ")
        assert name in pair.reason or "needs fp8 in hardware" in pair.reason
        if pair.target.hardware.vendor == "nvidia":  # Triton does not compile it
            with pytest.raises(TargetRefused, match="not supported in this architecture"):
                compiled(pair)
        else:  # Triton does: it puts the bits together one operation at a time
            text = compiled(pair).asm["amdgcn"]
            assert "cvt_pk_fp8" not in text

    @pytest.mark.parametrize("name", NATIVE_FLOAT8)
    def test_float8_by_one_instruction_where_it_is_not_refused(self, name, cache):
        from suites.triton_kernels import compile_of

        link(TARGETS[name])
        encoding, instruction = NATIVE_FLOAT8[name]
        made = compile_of("quantise", f"{encoding}-1x4096-bf16", name)
        assert instruction in "".join(made.asm.values())

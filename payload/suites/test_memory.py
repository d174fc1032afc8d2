"""Device memory: figures against known allocations, the guard, the pool."""

from __future__ import annotations

import os

import pytest
import torch

from suites.numerics import needs_cuda
from torchbridge import memory
from torchbridge.bench.peak import give_back
from torchbridge.memory import TensorPool

MIB = 2**20
CPU = torch.device("cpu")
FULL = torch.OutOfMemoryError("full")
ALONE = pytest.mark.skipif(
    os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") != "1",
    reason="fills the device: run it without other workers",
)


def of_bytes(size: int) -> torch.Tensor:
    """Return a tensor of `size` bytes."""
    return torch.empty(size, dtype=torch.uint8)


class TestStats:
    @pytest.fixture(autouse=True)
    def nothing_kept(self):
        """Release cached memory, because a new tensor in it would not raise the resident memory."""
        give_back()

    def test_what_is_allocated_is_counted(self, device):
        before = memory.stats(device)
        kept = torch.ones(96 * MIB // 4, device=device)
        grown = memory.stats(device).allocated - before.allocated
        assert kept.nbytes == 96 * MIB
        assert 0.95 * kept.nbytes <= grown <= 1.3 * kept.nbytes

    def test_peak_outlives_the_tensor(self, device):
        before = memory.stats(device)
        gone = torch.ones(64 * MIB // 4, device=device)
        held = memory.stats(device).allocated
        del gone
        give_back()  # returns freed heap memory to the system
        after = memory.stats(device)
        assert after.peak >= held >= before.allocated + 60 * MIB
        assert after.allocated < held


class TestSizes:
    def test_shared_storages_count_once(self):
        whole = torch.ones(1000)
        assert memory.storage_bytes([whole, whole[10:20], whole.view(10, 100)]) == 4000
        assert memory.storage_bytes([whole, torch.ones(10)]) == 4040


class TestGuard:
    @pytest.mark.parametrize(
        ("errors", "told", "calls"),
        [
            ([], "done", ["work"]),
            ([FULL], "done", ["work", "clean", "work"]),
            ([FULL, FULL], torch.OutOfMemoryError, ["work", "clean", "work"]),
            ([RuntimeError("shapes")], RuntimeError, ["work"]),  # other errors are not retried
        ],
    )
    def test_one_retry_after_a_clean_up(self, errors, told, calls):
        left, seen = list(errors), []

        def work() -> str:
            seen.append("work")
            if left:
                raise left.pop(0)
            return "done"

        def guarded() -> str:
            return memory.guard(work, clean_up=lambda: seen.append("clean"))

        if isinstance(told, str):
            assert guarded() == told
        else:
            with pytest.raises(told):
                guarded()
        assert seen == calls

    @ALONE
    @needs_cuda()
    def test_a_full_device(self, device):
        now = memory.stats(device)
        hoard = [torch.empty(now.free * 6 // 10, dtype=torch.uint8, device=device)]

        def work() -> torch.Tensor:
            return torch.empty(now.free * 6 // 10, dtype=torch.uint8, device=device)

        def clean_up() -> None:
            hoard.clear()
            memory.empty_cache(device)

        try:
            assert memory.guard(work, clean_up=clean_up).nbytes == now.free * 6 // 10
        finally:
            clean_up()


class TestTensorPool:
    def test_never_to_two_takers(self, device):
        pool = TensorPool(MIB)
        pool.give(torch.ones(8, device=device))
        taken = [pool.take((8,), torch.float32, device) for _ in range(3)]
        assert len({tensor.data_ptr() for tensor in taken}) == 3
        assert (pool.hits, pool.misses) == (1, 2)

    def test_given_twice_is_kept_once(self):
        pool, tensor = TensorPool(MIB), torch.ones(8)
        pool.give(tensor)
        pool.give(tensor)
        assert (len(pool), pool.bytes) == (1, 32)

    @pytest.mark.parametrize(
        ("shape", "dtype"), [((5, 4), torch.float32), ((20,), torch.float32), ((4, 5), torch.int32)]
    )
    def test_only_exactly_alike(self, shape, dtype):
        pool = TensorPool(MIB)
        pool.give(torch.ones(4, 5))
        taken = pool.take(shape, dtype, CPU)
        assert (taken.shape, taken.dtype, pool.hits, len(pool)) == (shape, dtype, 0, 1)

    def test_the_least_recently_used_goes(self):
        pool = TensorPool(1000)
        first, second, third = of_bytes(300), of_bytes(301), of_bytes(302)
        for tensor in (first, second, third):
            pool.give(tensor)
        pool.give(pool.take((300,), torch.uint8, CPU))  # now the first is the most recently used
        pool.give(of_bytes(303))
        assert pool.take((300,), torch.uint8, CPU).data_ptr() == first.data_ptr()
        assert pool.take((302,), torch.uint8, CPU).data_ptr() == third.data_ptr()
        hits = pool.hits
        pool.take((301,), torch.uint8, CPU)
        assert pool.hits == hits  # the second was evicted

    def test_views_are_not_kept(self):
        pool, whole = TensorPool(MIB), torch.ones(100)
        pool.give(whole[:10])
        pool.give(torch.ones(4, 6).t())
        assert len(pool) == 0

    def test_negative_limit(self):
        with pytest.raises(ValueError, match="limit_bytes must not be negative, got -1"):
            TensorPool(-1)

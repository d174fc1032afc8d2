"""The wait between two polls: how long it is, and what ends it."""

from __future__ import annotations

import asyncio
import threading

from orchestrator.adapters.wakeups import Wakeups

NEVER_S = 3600.0


def test_who_is_not_armed_waits_as_long_as_asked():
    asyncio.run(Wakeups().wait("a", 0.01))


def test_a_woken_wait_ends():
    wakeups = Wakeups(calm_s=NEVER_S)
    wakeups.arm("a")
    timer = threading.Timer(0.05, wakeups.wake, ("a",))
    timer.start()
    asyncio.run(wakeups.wait("a", 0.01))
    timer.join()


def test_a_wakeup_before_the_wait_is_not_lost():
    wakeups = Wakeups(calm_s=NEVER_S)
    wakeups.arm("a")
    wakeups.wake("a")
    asyncio.run(wakeups.wait("a", 0.01))


def test_one_wakeup_ends_one_wait():
    wakeups = Wakeups()
    wakeups.arm("a")
    wakeups.wake("a")
    asyncio.run(wakeups.wait("a", 0.01))
    wakeups.wake("a")
    assert not wakeups._waits


def test_another_key_is_not_woken():
    async def waits() -> bool:
        wakeups = Wakeups(calm_s=NEVER_S)
        wakeups.arm("a")
        wakeups.arm("b")
        waiting = asyncio.ensure_future(wakeups.wait("a", 0.01))
        await asyncio.sleep(0)
        wakeups.wake("b")
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        wakeups.wake("a")
        await waiting
        return not done

    assert asyncio.run(waits())


def test_without_a_wakeup_the_wait_ends():
    wakeups = Wakeups(calm_s=0.02)
    wakeups.arm("a")
    asyncio.run(wakeups.wait("a", 0.01))
    assert not wakeups._waits


def test_who_is_armed_again_meanwhile_stays_armed():
    async def waits() -> None:
        wakeups = Wakeups(calm_s=0.02)
        wakeups.arm("a")
        waiting = asyncio.ensure_future(wakeups.wait("a", 0.01))
        await asyncio.sleep(0)
        wakeups.arm("a")
        await waiting
        assert list(wakeups._waits) == ["a"]

    asyncio.run(waits())


def test_a_wakeup_for_a_closed_loop_is_no_error():
    """It would end the thread that calls back for all machines."""
    wakeups, loop = Wakeups(), asyncio.new_event_loop()
    wakeups.arm("a")
    wakeups._waits["a"].loop, wakeups._waits["a"].event = loop, asyncio.Event()
    loop.close()
    wakeups.wake("a")

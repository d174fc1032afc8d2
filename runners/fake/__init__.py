"""The provider ``fake``: a cloud in memory, whose faults are scripted.

It passes the contract tests of the real providers, and lets tests of a flow cover every fault of a
cloud or a machine without a cloud, a machine or a clock.
"""

from __future__ import annotations

from runners.fake.cloud import TRAITS, FakeCloud, FakeProvider, LaunchFault, MemoryHostStore
from runners.fake.fake_machine import FakeComputer, FakeWorkspace, passing

__all__ = [
    "TRAITS",
    "FakeCloud",
    "FakeComputer",
    "FakeProvider",
    "FakeWorkspace",
    "LaunchFault",
    "MemoryHostStore",
    "passing",
]

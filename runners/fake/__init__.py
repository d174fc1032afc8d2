"""The provider ``fake``: a cloud in memory, whose faults are scripted.

It answers the same contract tests as the real ones, and lets a flow be proved against every way
in which a cloud or a machine goes wrong, without a cloud, a machine or a clock.
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

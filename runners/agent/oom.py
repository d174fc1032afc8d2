"""Whether the kernel ran out of memory: the usual reason of a SIGKILL that nobody sent."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))


def oom_kills() -> int:
    """Return how often the kernel has killed for want of memory; 0 where it does not tell."""
    total = 0
    for path in _COUNTERS:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return total

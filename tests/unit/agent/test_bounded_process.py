"""Helper programs: nothing that one of them started is left after its answer."""

from __future__ import annotations

import sys

from runners.agent import bounded_process, processes

STARTS_A_GROUP = """
import os, time
if (child := os.fork()) == 0:
    os.setpgid(0, 0)
    os.close(1)
    os.close(2)
    time.sleep(600)
print(child)
"""


def test_what_left_the_group_of_a_program_ends_with_it() -> None:
    answer = bounded_process.run([sys.executable, "-c", STARTS_A_GROUP], timeout_s=30)
    assert answer.ok, answer.text
    assert int(answer.text) not in processes.table()

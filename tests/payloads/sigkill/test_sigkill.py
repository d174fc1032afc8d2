import os
import signal

import pytest


@pytest.mark.parametrize("n", range(3))
def test_before(n):
    pass


def test_killer():
    print("about to go", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("n", range(4))
def test_after(n):
    pass

"""Fixtures of the lab's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import image, seal
from tests.lab.lab_machines import LabMachines
from tests.lab.ssh_access import Keys, make_keys


@pytest.fixture(scope="session")
def sealed() -> None:
    """Skip what may only run where no packet can leave."""
    if not seal.inside_seal():
        reason = seal.missing() or "outside the lab's seal, where packets could leave"
        pytest.skip(f"{reason}: `make lab` runs it")


@pytest.fixture
def machines(sealed: None) -> Iterator[LabMachines]:
    """Real machines, all gone afterwards."""
    if image.find() is None:
        pytest.skip("the lab's machine image was not built: `make lab` builds it")
    with LabMachines() as found:
        yield found


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """A host key to inject and a user key to let in."""
    return make_keys(tmp_path)

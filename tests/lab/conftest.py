"""Fixtures of the lab's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.client import ClientCreator

from tests.lab import image, seal
from tests.lab.lab_machines import LabMachines
from tests.lab.ssh_access import Keys, make_keys


@pytest.fixture(scope="session", autouse=True)
def client_classes_are_made_once() -> Iterator[None]:
    """EC2's class has 700 methods: making it takes longer than what most tests ask of a client."""
    make, made = ClientCreator._create_client_class, dict[str, Any]()

    def once(self: ClientCreator, service_name: str, service_model: object) -> Any:
        if service_name not in made:
            made[service_name] = make(self, service_name, service_model)
        return made[service_name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientCreator, "_create_client_class", once)
        yield


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

"""The tutorial that rents a machine, followed in the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.lab_machines import LabMachines
from tests.lab.shell import lab_terminal
from tests.lab.site import a_site


@pytest.mark.timeout(600)
def test_a_wheel_is_validated_on_a_rented_machine(machines: LabMachines, tmp_path: Path) -> None:
    with a_site(machines) as site, lab_terminal(site, tmp_path / "you") as terminal:
        terminal.follow("tutorials/wheel-on-a10g.md")
        assert not machines.live()
        site.aws.raise_crashes()

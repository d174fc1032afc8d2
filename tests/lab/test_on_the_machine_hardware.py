"""Another device than the one that was asked for gives no result. Run inside the seal."""

from __future__ import annotations

import pytest

from tests.lab import payloads_of_lab as lab
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

TEST = "def test_that_must_not_run():\n    assert True\n"
FOUR: dict[str, object] = {
    **lab.AWS,
    "id": "four",
    "instance_type": "g5.12xlarge",
    "accelerator": {"vendor": "nvidia", "name": "A10G", "count": 4},
}


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


def test_wrong_hardware_is_no_result(site, tmp_path):
    site.aws.devices["g5.xlarge"] = "L4"
    site.aws.devices["g5.12xlarge"] = "A10G"
    setup = '[setup]\npip = ["pytest>=8"]\n'
    files = {"test_one.py": TEST}
    payload = lab.a_payload(tmp_path / "payload", lab.suite("one", "test_one.py"), files, setup)
    with served(site, tmp_path / "home") as home:
        limits = {"allow_unknown_price": True}
        matrix = lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS, FOUR, limits=limits)
        run = home.launch(matrix)
        shown = lab.finished(home, run)
        cells = {cell["id"]: cell for cell in shown["cells"]}
        tests = [home.get(f"/runs/{run}/cells/{one}/tests")["items"] for one in cells]
    assert shown["outcome"] == "errored"
    assert tests == [[], []]
    for cell in cells.values():
        assert (cell["outcome"], cell["reason"]) == ("errored", "wrong_hardware"), cell["detail"]
        assert len(cell["attempts"]) == 1, "another machine of the place would be no better"
        assert cell["leases"][-1]["state"] == "gone"
        assert {job["outcome"] for job in cell["jobs"]} <= {"errored", "not_run", None}
        assert cell["attestation"]["mismatch"]
    assert "NVIDIA L4" in cells["aws"]["detail"]
    assert "asked for 4 x nvidia A10G, found" in cells["four"]["detail"]
    lab.nothing_left(site)

"""What a machine boots and what it is sent: no index is needed there. Run inside the seal."""

from __future__ import annotations

import pytest

from tests.lab import payloads_of_lab as lab
from tests.lab.cloud_facts import FASTER
from tests.lab.lab_machines import Spoil
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

ALONE = """
import os, pathlib, socket, subprocess, sys
import pytest

def test_pytest_is_the_shipped_one():
    assert pathlib.Path(pytest.__file__).is_relative_to(sys.prefix), pytest.__file__
    version = subprocess.run(["/opt/pytorch/bin/python", "-c", "import pytest"])
    assert version.returncode, "the image has none"

def test_torch_is_the_images():
    import torch
    assert torch.__file__.startswith("/opt/pytorch/")

@pytest.mark.parametrize("name", ["pypi.org", "files.pythonhosted.org", "s3.amazonaws.com"])
def test_nobody_answers_for_a_name(name):
    with pytest.raises(OSError):
        socket.getaddrinfo(name, 443)

@pytest.mark.parametrize("address", ["151.101.0.223", "8.8.8.8"])
def test_no_address_answers(address):
    with pytest.raises(OSError):
        socket.create_connection((address, 443), timeout=2)

def test_pip_has_no_index():
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries",
                           "0", "--timeout", "2", "-d", "/tmp", "colorama"], capture_output=True)
    assert done.returncode
"""
COLD_S = 600 / FASTER
"""An application took as long from a new disk: aws-samples/bottlerocket-images-cache, issue 13."""
CHIP = """
import glob, os
print("PJRT_DEVICE is", os.environ.get("PJRT_DEVICE"))
print("LAB_WORD is", os.environ.get("LAB_WORD"))
print("the chip:", os.access("/dev/accel0", os.R_OK | os.W_OK), "as", os.getuid())
"""


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


def test_a_machine_without_an_index_gets_what_it_lacks(site, tmp_path):
    site.machines.spoil(lambda spec: Spoil(cold_s=COLD_S))
    setup = '[setup]\npip = ["pytest>=8"]\n'
    jobs = lab.suite("alone", "test_alone.py")
    payload = lab.a_payload(tmp_path / "payload", jobs, {"test_alone.py": ALONE}, setup)
    newest, second = "2.12-ubuntu-24.04", "2.11-ubuntu-24.04"
    line = "oss-nvidia-driver-gpu-pytorch-"
    site.aws.images.drop_parameter(line + newest)
    ami = site.aws.images.id_of(f"{line}2.7-ubuntu-22.04", "us-east-1")
    own = {**lab.AWS, "id": "own", "image": {"ami": ami}}
    with served(site, tmp_path / "home") as home:
        run = home.launch(lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS, own))
        shown = lab.finished(home, run)
        told = home.json("show", run)
    assert [cell["outcome"] for cell in shown["cells"]] == ["passed", "passed"], shown["cells"]
    assert [cell["counts"]["passed"] for cell in shown["cells"]] == [8, 8]
    usual, chosen = (cell["attestation"]["facts"] for cell in told["cells"])
    assert usual["image_id"] == site.aws.images.id_of(line + second, "us-east-1")
    assert "PyTorch 2.11 (Ubuntu 24.04)" in usual["image_name"]
    assert chosen["image_id"] == ami
    asked = [c.details["Name"] for c in site.aws.calls if c.name == "GetParameter"]
    assert [name.split("pytorch-")[1].split("/")[0] for name in asked[:2]] == [newest, second]
    for cell in told["cells"]:
        assert cell["attestation"]["devices"][0]["name"] == "NVIDIA A10G"
        assert cell["packages"]["pytest"]
    lab.nothing_left(site)


def test_a_tpus_environment_reaches_its_jobs(site, tmp_path):
    environment = (
        '[env.tpu]\npip = ["pytest>=8"]\nvariables = {PJRT_DEVICE = "TPU", LAB_WORD = "heard"}\n'
    )
    payload = lab.a_payload(
        tmp_path / "payload", lab.demo("chip", "chip.py"), {"chip.py": CHIP}, environment
    )
    tpu = {**lab.TPU, "environments": ["tpu"]}
    with served(site, tmp_path / "home") as home:
        run = home.launch(lab.a_matrix(tmp_path / "m.yaml", payload, tpu))
        (cell,) = lab.finished(home, run)["cells"]
        log = lab.log_of(home, run, "tpu")
    assert cell["outcome"] == "passed", cell["detail"]
    assert cell["environment"] == "tpu"
    assert "PJRT_DEVICE is TPU" in log
    assert "LAB_WORD is heard" in log
    assert "the chip: True as" in log
    assert "the chip: True as 0" not in log
    assert cell["probed"]["separated_user"] is True
    lab.nothing_left(site)

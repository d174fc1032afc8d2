"""The payload needs torch, numpy and pytest, and nothing of this repository around it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile

import pytest

from orchestrator.adapters.files.archive import FilePayloadArchives
from orchestrator.adapters.files.documents import FileDocuments
from tests.payload.collected import PAYLOAD, collected

PLUGIN = os.path.dirname(__file__)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The payload as it lies on a machine."""
    folder = tmp_path_factory.mktemp("machine")
    archive = FilePayloadArchives(FileDocuments()).pack(PAYLOAD, into=folder)
    with tarfile.open(archive.path) as tar:
        tar.extractall(folder / "payload", filter="data")
    return folder / "payload"


def bare(folder, *arguments):
    """pytest in the folder, with an empty environment and no optional package."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "bare", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder.parent),
            "PYTHONPATH": PLUGIN,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
    )


def _functions(ids):
    """Without their parameters, of which a package that is missing may leave none."""
    return {one.split("[")[0] for one in ids}


def test_every_suite_is_collected_without_optional_packages(unpacked):
    done = bare(unpacked, "--collect-only", "-qq")
    assert done.returncode == 0, done.stdout[-3000:]
    found = {line.removeprefix("suites/") for line in done.stdout.splitlines() if "::" in line}
    needing = {x.split("::")[0] for x in _functions(collected()) - _functions(found)}
    not_shipped = {"test_bench_pages.py", "test_bench_baselines.py"}
    assert needing <= not_shipped


def test_what_is_missing_is_skipped_with_its_name(unpacked):
    done = bare(unpacked, "-rs", "suites/test_deployment.py", "-k", "ONNX")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "onnx" in done.stdout
    assert " skipped" in done.stdout

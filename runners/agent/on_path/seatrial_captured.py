"""Moves pytest's captured output into named files, which a killed process leaves behind.

pytest captures descriptors 1 and 2 in unnamed temporary files, which vanish with its process. Their
descriptors are pointed at files in ``$SEATRIAL_CAPTURED``: pytest goes on as before, and the agent
reads what pytest had not shown. ``--capture=sys`` keeps output in memory only: that is lost.
"""
# ruff: noqa: INP001, PTH108, PTH118, PTH123 - no package; no function of pathlib that a test may replace

from __future__ import annotations

import os
import sys
from typing import Any, List, Tuple

import pytest
import seatrial_origins

_STREAMS = {"out": "stdout", "err": "stderr"}
"""Name of a stream in pytest's report headings, by pytest's internal name of the stream."""
_MAIN = "main"


def move(config: pytest.Config, worker: str) -> None:
    """Point the descriptors of pytest's capture files at named files.

    If that fails, the tests run nevertheless, and the job's log says which output may be lost.

    Args:
        config: pytest's, with the capturing already begun.
        worker: Id of pytest-xdist's worker process; empty in the main process.
    """
    folder = seatrial_origins.GIVEN.get("SEATRIAL_CAPTURED")
    manager: Any = config.pluginmanager.getplugin("capturemanager")
    if not folder or manager is None:
        return
    try:
        capturing = manager._global_capturing  # noqa: SLF001 - pytest has no public name for it
        for name, stream in _STREAMS.items():
            capture = getattr(capturing, name)
            if capture is not None and hasattr(capture, "targetfd_save"):
                _point(capture, os.path.join(folder, f"{worker or _MAIN}.{stream}"))
    except (AttributeError, OSError) as error:
        said = "the output of a test that hangs or crashes would be lost"
        print(f"seatrial: {said}: {error}", file=sys.stderr, flush=True)


def take(worker: str) -> List[Tuple[str, str]]:
    """Remove the output files of a lost pytest-xdist worker; return them as report sections."""
    folder, found = seatrial_origins.GIVEN.get("SEATRIAL_CAPTURED"), []
    for stream in _STREAMS.values() if folder else ():
        path = os.path.join(str(folder), f"{worker}.{stream}")
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found.append((f"Captured {stream}", file.read()))
            os.unlink(path)
        except FileNotFoundError:  # its output was not captured
            continue
    return [section for section in found if section[1]]


def _point(capture: Any, path: str) -> None:  # noqa: ANN401 - pytest's FDCapture
    """Replace the open file behind a descriptor; its present content is copied."""
    own = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    capture.tmpfile.flush()
    held = capture.tmpfile.fileno()
    size = os.fstat(held).st_size
    os.write(own, os.pread(held, size, 0))
    active = os.path.sameopenfile(held, capture.targetfd)
    os.dup2(own, held, inheritable=False)
    if active:
        os.dup2(own, capture.targetfd)
    os.close(own)

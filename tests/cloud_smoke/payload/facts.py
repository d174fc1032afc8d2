"""Runs on the rented machine, and says what it finds there."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import seatrial_events

METADATA = "http://169.254.169.254"
TIMEOUT_S = 5


def asked(path: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> int:
    """The status of a request to the metadata address; 0 where nobody answers."""
    request = urllib.request.Request(METADATA + path, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def look_at_metadata() -> None:
    """Whether the metadata address answers those who do not know its rules."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    if asked("/latest/api/token", method="PUT", headers=ttl) == 200:
        status = asked("/latest/meta-data/instance-id")
        said("metadata-guarded", good=status == 401, value=f"without a token: {status}")
    elif asked("/computeMetadata/v1/", headers={"Metadata-Flavor": "Google"}) == 200:
        status = asked("/computeMetadata/v1/")
        said("metadata-guarded", good=status == 403, value=f"without the header: {status}")
    else:
        reason = "no metadata server that is known here answers"
        seatrial_events.check("metadata-guarded", "skipped", reason=reason)


def look_at_device() -> None:
    """Whether torch multiplies on the accelerator."""
    try:
        import torch
    except ImportError as error:
        seatrial_events.check("device-computes", "skipped", reason=str(error))
        return
    device, name = find_device(torch)
    if device is None:
        said("device-computes", good=False, value=f"torch {torch.__version__} sees no accelerator")
        return
    begin = time.monotonic()
    product = (torch.ones(512, 512, device=device) @ torch.ones(512, 512, device=device)).cpu()
    took = time.monotonic() - begin
    good = bool((product == 512).all())
    said("device-computes", good=good, value=f"{name}, torch {torch.__version__}, {took:.2f} s")


def find_device(torch):
    """The accelerator and its name; None where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda"), torch.cuda.get_device_name()
    try:
        import torch_xla.core.xla_model as xla
    except ImportError:
        return None, ""
    device = xla.xla_device()
    return device, str(xla.xla_device_hw(device))


def said(name: str, *, good: bool, value: str) -> None:
    """Tell it to Seatrial, and to whoever reads the log."""
    seatrial_events.check(name, "passed" if good else "failed", value=value)
    print(name, "ok" if good else "FAILED", value)


if __name__ == "__main__":
    seatrial_events.check("uptime", "passed", value=Path("/proc/uptime").read_text().split()[0])
    look_at_metadata()
    look_at_device()

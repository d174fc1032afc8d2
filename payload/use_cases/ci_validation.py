"""UC3: validate a machine before its tests are trusted: diagnostics, correct numbers, exports.

Each of the 14 diagnostics reports what it did and what to do; numbers are compared with float64 on
the CPU, exported files with the model. The report of 2026-01-31 has 12 of 14 diagnostics passed,
and "PASS" for CPU and CUDA, from checks that could not fail. No time is compared. Run: `python -m
use_cases.ci_validation --report FILE`. Batch sizes are swept by `use_cases.batch_sweep`.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchbridge import __version__, evidence
from torchbridge.device import describe, pick_device
from torchbridge.doctor import diagnose, show
from torchbridge.hardware import probe
from torchbridge.numbers import relative_error
from torchbridge.validation import Finding, machine
from use_cases.batch_sweep import Block, banner

FORMATS = {"torchscript": ".pt", "onnx": ".onnx", "safetensors": ".safetensors"}
FORMATS |= {"torch_export": ".pt2"}
TOLERANCE = 1e-5  # relative error of a device against float64 on the CPU

Results = dict[str, dict[str, Any]]


def check(name: str, finding: Finding) -> dict[str, Any]:
    """Print a finding and emit it; a warning is no failure."""
    print(f"[{finding.status}] {name}: {finding.message}")
    evidence.check(f"ci/{name}", finding.status != "fail", reason=finding.message)
    return finding.to_dict() | {"name": name}


def diagnostics() -> Results:
    """Run the doctor's 14 diagnostics."""
    reports = diagnose()
    show(reports)
    for finding in (finding for report in reports for finding in report):
        outcome = finding.status != "fail"
        evidence.check(f"ci/doctor/{finding.name}", outcome, reason=finding.message)
    return {report.title: report.to_dict() for report in reports}


def consistency(model: Block, devices: list[torch.device]) -> Results:
    """Compare the model on [4, 512] on each device with float64 on the CPU."""
    x = torch.randn(4, 512, generator=torch.Generator().manual_seed(0))
    expected = copy.deepcopy(model).double()(x.double())
    results = {}
    for device in devices:
        actual = copy.deepcopy(model).to(device)(x.to(device))
        error = relative_error(actual, expected)
        facts = {"value": error, "unit": "relative", "tolerance": TOLERANCE}
        good = evidence.check(f"ci/consistency/{device}", error <= TOLERANCE, **facts)
        print(f"{device}: relative error {error:.1e} against float64, tolerance {TOLERANCE:.0e}")
        results[str(device)] = facts | {"status": "pass" if good else "fail"}
    return results


def exports(model: Block, sample: Tensor) -> Results:
    """Write each format, re-load it and compare it for several batch sizes."""
    from torchbridge.export import EXPORTERS, ExportUnavailable

    results: Results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, suffix in FORMATS.items():
            path = Path(folder) / f"model{suffix}"
            try:
                done = EXPORTERS[name](copy.deepcopy(model), path, (sample,))
            except ExportUnavailable as missing:
                print(f"[skipped] {missing}")
                evidence.check(f"ci/export/{name}", "skipped", reason=str(missing))
                results[name] = {"status": "skipped", "reason": str(missing)}
            except Exception as error:  # whatever an exporter meets, the others are still tried
                reason = f"{type(error).__name__}: {error}"
                print(f"[fail] {name}: {reason}")
                evidence.check(f"ci/export/{name}", False, reason=reason)
                results[name] = {"status": "fail", "reason": reason}
            else:
                results[name] = exported(name, done)
    return results


def exported(name: str, done: Any) -> dict[str, Any]:
    """Print and emit the verification of an export."""
    print(
        f"[pass] {name}: {done.size_bytes / 2**20:.1f} MiB in {done.seconds:.1f} s, difference "
        f"{done.max_difference:.1e} on {done.inputs_verified} inputs of "
        f"{done.shapes_verified} shapes"
    )
    facts = {"value": done.max_difference, "unit": "relative"}
    evidence.check(f"ci/export/{name}", True, **facts)
    return {"status": "pass", "size_bytes": done.size_bytes, "seconds": done.seconds, **facts}


def failures(results: dict[str, Any]) -> list[str]:
    """Return the paths of all failures in nested results."""
    found = []
    for name, value in results.items():
        if isinstance(value, dict):
            found += [f"{name}/{inner}" for inner in failures(value)]
        elif isinstance(value, list):
            named = {str(one.get("name")): one for one in value if isinstance(one, dict)}
            found += [f"{name}/{inner}" for inner in failures(named)]
        elif name == "status" and value == "fail":
            found.append("status")
    return found


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    """Run all steps; return 0 if nothing failed."""
    parser = argparse.ArgumentParser(description="UC3: diagnostics, numbers, exports")
    parser.add_argument("--report", type=Path, help="write the results to this file as JSON")
    options = parser.parse_args(arguments)
    device = pick_device()
    devices = list(dict.fromkeys([torch.device("cpu"), device]))
    torch.manual_seed(42)
    model = Block().eval()
    print(f"torchbridge {__version__}, {describe(device)}")
    results: dict[str, Any] = {}
    banner(1, "Diagnostics")
    results["diagnostics"] = diagnostics()
    banner(2, "Tensor operations: a product [100, 100]")
    results["tensor_operations"] = {
        str(one): check(f"product/{one}", machine.compute(machine.Machine(one, probe(one))))
        for one in devices
    }
    banner(3, "The same numbers on every device")
    results["consistency"] = consistency(model, devices)
    banner(4, "Export formats")
    results["export_formats"] = exports(model.to(device), torch.randn(4, 512).to(device))
    banner(5, "Result")
    bad = failures(results)
    system = {"python": platform.python_version(), "torch": torch.__version__}
    system |= {"platform": platform.platform(), "device": describe(device)}
    written = {
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": system,
        **results,
        "status": "fail" if bad else "pass",
    }
    if options.report:
        options.report.write_text(json.dumps(written, indent=2) + "\n")
        print(f"Report: {options.report}")
    print(f"FAIL: {', '.join(bad)}" if bad else "PASS")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

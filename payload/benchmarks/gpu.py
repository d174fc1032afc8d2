"""Every target on this machine's CUDA device, in one go: one JSON file and one page.

Each duel runs in a process of its own with a time limit, so that one that crashes or hangs does not
cost the others. The page has a row for each: ratio with its interval, goal met or missed or why the
duel was refused, fractions of the roofline; then which kernels to keep, and where the time goes of
what falls short. Without a CUDA device it ends with 2; `--device cpu --small` tries all of it on
the CPU, where no figure means anything.
Run: `python -m benchmarks.gpu --out FOLDER`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_page import page
from benchmarks.gpu_profile import profile_of
from torchbridge import __version__, evidence
from torchbridge.bench import Gauges, last_level_cache, measured_bandwidth, run_duel
from torchbridge.bench.gauges import driver
from torchbridge.device import describe
from torchbridge.hardware import probe
from torchbridge.peaks import peak_bandwidth, peak_flops
from torchbridge.validation.numbers import whole_float32

LIMIT_S = 240.0  # of one duel, compiling included
BUDGET_S = 15.0  # of its sampling
PATIENCE_S = 10.0  # for a child that was told to end
SAID = 2000  # characters of what a child that failed said last


def makers() -> dict[str, Any]:
    """All duels by name, the kernels' first; imported here, as they need much."""
    from benchmarks import gpu_duels, kernels

    return {f"kernels/{name}": make for name, make in kernels.DUELS.items()} | gpu_duels.DUELS


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures belong to."""
    hardware = probe(device)
    told = {
        "device": describe(device),
        "target": hardware.target,
        "torchbridge": __version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "driver": driver() if device.type == "cuda" else None,
        "cache_bytes": last_level_cache(device),
        "copy_bytes_per_s": measured_bandwidth(device),
        "peak_bytes_per_s": peak_bandwidth(hardware),
        "peak_flops": {n: peak_flops(hardware, n) for n in ("fp32", "bf16", "fp8")},
        "gauges": Gauges(device).read(),
    }
    for package in ("triton", "transformers"):
        found = importlib.util.find_spec(package)
        told[package] = importlib.import_module(package).__version__ if found else None
    return told


def fight(name: str, device: torch.device, small: bool, out: Path) -> int:
    """The child: one duel, its outcome as JSON in `out`; a refusal is an outcome too."""
    limits = {"pairs": 24, "at_least": 12, "budget_s": 0.5} if small else {}
    limits = {"pairs": 200, "budget_s": BUDGET_S, "precision": 0.01, **limits}
    start = time.monotonic()
    try:
        torch.manual_seed(0)
        with torch.no_grad(), whole_float32():  # arms that need gradients switch them on
            with refusing():
                duel = makers()[name](device, small)
                outcome = run_duel(duel, **limits)
            told = outcome.to_dict()
            if False in (outcome.goal_met, outcome.memory_goal_met):
                arms = {"subject": duel.subject, "baseline": duel.baseline}
                told["profile"] = {arm: profile_of(work, device) for arm, work in arms.items()}
    except RefusedError as refusal:
        print(f"{name}: refused: {refusal}", flush=True)
        told = {"refused": str(refusal)}
    told |= {"target": name, "whole_s": time.monotonic() - start}
    out.write_text(json.dumps(told))
    return 0


class RefusedError(Exception):
    """The duel cannot be held here; the message says why."""


@contextlib.contextmanager
def refusing() -> Any:
    """What the library refuses within is a refusal; anything else stays an error."""
    from benchmarks.floor_duels import NotHereError
    from torchbridge.attention import PathRefused
    from torchbridge.kernels import KernelRefused

    try:
        yield
    except (NotHereError, PathRefused, KernelRefused) as error:
        raise RefusedError(str(error)) from error


def in_a_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The parent: one duel in a process of its own; what went wrong with it is in the answer."""
    words = [sys.executable, "-m", "benchmarks.gpu", "--one", name, "--device", options.device]
    with tempfile.TemporaryDirectory(prefix="torchbridge-gpu-") as folder:
        out = Path(folder) / "outcome.json"
        words += ["--out", str(out)] + (["--small"] if options.small else [])
        child = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = child.communicate(timeout=options.limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # with the compilers that it started
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=PATIENCE_S)
            return {"target": name, "error": f"still running after {options.limit:g} s"}
        print(said, end="", flush=True)
        if child.returncode or not out.is_file():
            print(f"{name}: failed with {child.returncode}", flush=True)
            return {"target": name, "error": said[-SAID:], "exit": child.returncode}
        return json.loads(out.read_text())


def summarise(results: list[dict[str, Any]]) -> tuple[str, bool]:
    """(the line of figures, whether every duel that was not refused could be held)."""
    held = [one for one in results if "ratio" in one]
    refused = sum("refused" in one for one in results)
    goals = [one["goal_met"] for one in held if one["goal"] is not None]
    goals += [one["memory_goal_met"] is True for one in held if one["memory_goal"] is not None]
    broken = len(results) - len(held) - refused
    line = f"gpu: {sum(goals)} of {len(goals)} goals met, {refused} duels refused, {broken} failed"
    return line, broken == 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="All targets on the CUDA device of this machine")
    parser.add_argument("--out", type=Path, required=True, help="folder of the file and the page")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a trial, no figures")
    parser.add_argument("--only", nargs="*", default=[], help="names, or how they begin")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds per duel")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """0 if every duel that is not refused was held; 2 without the device."""
    options = parse(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("No CUDA device here: nothing was measured.")
        return 2
    if device.type != "cuda" and not options.small:
        print(f"On {device.type} it is only tried: --small is needed, and nothing was measured.")
        return 2
    if options.one:
        return fight(options.one, device, options.small, options.out)
    wanted = [n for n in makers() if not options.only or n.startswith(tuple(options.only))]
    print(f"{len(wanted)} duels, torchbridge {__version__}, {describe(device)}", flush=True)
    known = machine(device)
    results = [in_a_process(name, options) for name in wanted]
    line, good = summarise(results)
    told = {"schema": 1, "machine": known, "small": options.small, "duels": results}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.json").write_text(json.dumps(told, indent=1))
    (options.out / "gpu.md").write_text(page(told))
    evidence.check("gpu/held", good and bool(results), value=len(results), unit="duels")
    print(f"{line}; {options.out / 'gpu.json'}, {options.out / 'gpu.md'}")
    return 0 if good and results else 1


if __name__ == "__main__":
    sys.exit(main())

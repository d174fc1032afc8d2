"""Every target on this machine's CUDA device, in one go: one JSON file and one page.

Each duel runs in a process of its own with a time limit, so that one that crashes or hangs does not
cost the others; file and page are written after each, and `--only` keeps the others' rows of a run
before on the same device, so that groups can run one after the other. The page has a row for each:
ratio with its interval, goal met or missed or why the duel was refused, fractions of the roofline;
then which kernels to keep, and where the time goes of what falls short. Without a CUDA device it
ends with 2; `--device cpu --small` tries all of it on the CPU, where no figure means anything.
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
import threading
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_page import page
from benchmarks.gpu_profile import profile_of
from torchbridge import __version__, evidence, memory
from torchbridge.bench import Duel, Gauges, last_level_cache, measured_bandwidth, run_duel
from torchbridge.bench.gauges import driver
from torchbridge.bench.run import arms_of
from torchbridge.device import describe
from torchbridge.hardware import probe
from torchbridge.numbers import whole_float32
from torchbridge.peaks import peak_bandwidth, peak_flops

LIMIT_S = 240.0  # of one duel, compiling included
LIMITS_S = {"gpt2": 540.0}  # of those that need longer
BUDGET_S = 15.0  # of its sampling
PATIENCE_S = 10.0  # for a child that was told to end
SAID = 8000  # characters of what a child that failed said last


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
    memory.empty_cache(device)  # the duels need it
    for package in ("triton", "transformers"):
        found = importlib.util.find_spec(package)
        told[package] = importlib.import_module(package).__version__ if found else None
    return told


def fight(name: str, device: torch.device, small: bool, out: Path) -> int:
    """The child: one duel, its outcome as JSON in `out`; a refusal is an outcome too."""
    limits = {"pairs": 24, "at_least": 12, "budget_s": 0.5} if small else {}
    limits = {"pairs": 200, "budget_s": BUDGET_S, "precision": 0.01, **limits}
    start = time.monotonic()
    told: dict[str, Any] = {"target": name}
    try:
        torch.manual_seed(0)
        with torch.no_grad(), whole_float32():  # arms that need gradients switch them on
            with refusing():
                duel = makers()[name](device, small)
                outcome = run_duel(duel, **limits)
            told |= outcome.to_dict()
            if False in (outcome.goal_met, outcome.memory_goal_met):
                put(out, json.dumps(told | {"unprofiled": ""}))  # a profiler may take us along
                told |= profiles(duel)
    except RefusedError as refusal:
        print(f"{name}: refused: {refusal}", flush=True)
        told |= {"refused": str(refusal), "absent": refusal.absent}
    put(out, json.dumps(told | {"whole_s": time.monotonic() - start}))
    return 0


def profiles(duel: Duel) -> dict[str, Any]:
    """Where the time of both arms goes, or why that is not known."""
    try:
        found = {arm: profile_of(work, duel.device) for arm, work in arms_of(duel).items()}
    except Exception as error:  # the outcome is worth more
        return {"unprofiled": f"{type(error).__name__}: {error}"}
    return {"profile": found}


class RefusedError(Exception):
    """The duel cannot be held here; the message says why. `absent`: a package is what it lacks."""

    absent = False


@contextlib.contextmanager
def refusing() -> Any:
    """What the library refuses within is a refusal; anything else stays an error."""
    from benchmarks.floor_duels import NotHereError
    from torchbridge.attention import PathRefused
    from torchbridge.kernels import KernelRefused

    try:
        yield
    except (NotHereError, PathRefused, KernelRefused) as error:
        refusal = RefusedError(str(error))
        refusal.absent = isinstance(error, NotHereError)
        raise refusal from error


def put(path: Path, text: str) -> None:
    """All of it or nothing, whenever this process ends."""
    whole = path.with_suffix(".part")
    whole.write_text(text)
    whole.replace(path)


def in_a_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The parent: one duel in a process of its own; what went wrong with it is in the answer."""
    words = [sys.executable, "-m", "benchmarks.gpu", "--one", name, "--device", options.device]
    limit = options.limit or LIMITS_S.get(name, LIMIT_S)
    with tempfile.TemporaryDirectory(prefix="torchbridge-gpu-") as folder:
        out, log = Path(folder, "outcome.json"), Path(folder, "said")
        words += ["--out", str(out)] + (["--small"] if options.small else [])
        code = child(words, log, limit)
        said = log.read_text(errors="replace")
        print(said, end="", flush=True)
        why = f"still running after {limit:g} s" if code is None else ended(code)
        if code != 0:
            print(f"{name}: {why}", flush=True)
        if out.is_file():
            told = json.loads(out.read_text())
            return told | ({"unprofiled": why} if told.get("unprofiled") == "" else {})
        told = {"target": name, "error": why}
        return told if code is None else told | {"error": said[-SAID:] or why, "exit": code}


def ended(code: int) -> str:
    """How a process that was not good ended, in words."""
    if code >= 0:
        return f"failed with {code}"
    hint = ", which the kernel sends for want of memory" if -code == signal.SIGKILL else ""
    return f"ended by {signal.Signals(-code).name}{hint}"


def child(words: list[str], log: Path, limit: float) -> int | None:
    """The exit code; None: killed, as it took more than `limit` seconds. It never outlives us."""
    with log.open("wb") as said:
        streams = {"stdin": subprocess.PIPE, "stdout": said, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(words, **streams, start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it started
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
        process.stdin.close()


def end_with_parent() -> None:
    """Who is killed cannot kill its child, but closes the pipe between them."""
    os.read(0, 1)
    os.killpg(os.getpid(), signal.SIGKILL)


def earlier(folder: Path, now: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """By target: what a run before has left in `folder`, of this machine and not wanted now."""
    try:
        then = json.loads((folder / "gpu.json").read_text())
    except FileNotFoundError:
        return {}
    whose = [(t["small"], t["machine"]["device"], t["machine"]["torch"]) for t in (then, now)]
    kept = then["duels"] if whose[0] == whose[1] else []
    return {one["target"]: one for one in kept if one["target"] not in wanted}


def summarise(results: list[dict[str, Any]]) -> tuple[str, bool]:
    """(the line of figures, whether any duel was held, and every one that was not refused)."""
    held = [one for one in results if "ratio" in one]
    refused = sum("refused" in one for one in results)
    goals = [one["goal_met"] for one in held if one["goal"] is not None]
    goals += [one["memory_goal_met"] is True for one in held if one["memory_goal"] is not None]
    broken = len(results) - len(held) - refused
    good = evidence.check("gpu/held", held != [] and broken == 0, value=len(held), unit="duels")
    figures = f"{len(held)} duels held, {refused} refused, {broken} failed"
    return f"gpu: {sum(goals)} of {len(goals)} goals met, {figures}", good


def measured(results: list[dict[str, Any]], options: argparse.Namespace) -> bool:
    """Name what was refused; False where that is for want of a package, and not allowed."""
    refused = [one for one in results if "refused" in one]
    if refused:
        print("refused:", ", ".join(one["target"] for one in refused))
    absent = [one["target"] for one in refused if one["absent"]]
    if not absent or options.allow_refused or not options.device.startswith("cuda"):
        return True
    print(f"No baseline here for {', '.join(absent)}: install it, or say --allow-refused")
    return False


def why_not(device: torch.device, small: bool) -> str | None:
    """Why nothing can be measured on `device`; None when it can."""
    if device.type != "cuda":
        return None if small else f"On {device.type} it is only tried: --small is needed"
    if torch.cuda.is_available():
        return None
    if (version := driver()) is None:
        return "No CUDA device here"
    return (
        f"torch {torch.__version__} (its CUDA: {torch.version.cuda or 'none'}) cannot use the"
        f" device of NVIDIA's driver {version}; if that is too old for it, `rm -r .venv` and"
        " `make bench-gpu TORCH='torch==2.8.0'`"
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="All targets on the CUDA device of this machine")
    parser.add_argument("--out", type=Path, required=True, help="folder of the file and the page")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a trial, no figures")
    parser.add_argument("--only", nargs="*", default=[], help="names, or how they begin")
    parser.add_argument("--limit", type=float, help="seconds per duel, instead of ours")
    parser.add_argument(
        "--allow-refused",
        action="store_true",
        help="pass though a baseline is not installed, as it always does on the CPU",
    )
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """0 if every duel that is not refused was held; 2 without the device."""
    options = parse(arguments)
    device = torch.device(options.device)
    if reason := why_not(device, options.small):
        print(f"{reason}: nothing was measured.")
        return 2
    if options.one:
        threading.Thread(target=end_with_parent, daemon=True).start()
        return fight(options.one, device, options.small, options.out)
    names = list(makers())
    wanted = [n for n in names if not options.only or n.startswith(tuple(options.only))]
    print(f"{len(wanted)} duels, torchbridge {__version__}, {describe(device)}", flush=True)
    told = {"schema": 1, "machine": machine(device), "small": options.small}
    done = earlier(options.out, told, wanted)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        done[name] = in_a_process(name, options)
        told["duels"] = [done[n] for n in names if n in done]
        put(options.out / "gpu.json", json.dumps(told, indent=1))
        put(options.out / "gpu.md", page(told))
    results = [done[name] for name in wanted]
    whole = measured(results, options)
    line, good = summarise(results)
    print(f"{line}; {options.out / 'gpu.json'}, {options.out / 'gpu.md'}")
    return 0 if good and whole else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through every `finally`
    sys.exit(main())

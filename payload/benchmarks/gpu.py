"""Run correctness suites and benchmarks on this machine's CUDA device within a time budget.

`python -m benchmarks.gpu --budget 540` needs no package index and nothing but this folder. First
come the correctness suites (`gpu_suites`), then the benchmarks, the most important first. Each runs
in its own process with a time limit, so that a crash or hang does not affect the others; `gpu.json`
and the page `gpu.md` are written after each. The next call resumes: what is complete at this commit
on such a device is kept, and what failed is tried again last. Rows measured while the device was
throttled are rejected. `--only` repeats what it names, `--anew` everything. Without a CUDA device
it exits with 2; `--device cpu --small` tries everything on the CPU, without meaningful figures.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
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

from benchmarks import gpu_suites
from benchmarks.gpu_page import page
from benchmarks.gpu_profile import profile_of
from torchbridge import __version__, evidence, memory
from torchbridge.bench import (
    Benchmark,
    Sensors,
    last_level_cache,
    measured_bandwidth,
    run_benchmark,
)
from torchbridge.bench.run import arms_of
from torchbridge.bench.sensors import driver
from torchbridge.device import describe
from torchbridge.hardware import probe
from torchbridge.numbers import whole_float32
from torchbridge.peaks import peak_bandwidth, peak_flops

LIMIT_S = 240.0  # of one benchmark, compiling included
LIMITS_S = {"gpt2": 540.0}  # of those that need longer
BUDGET_S = 15.0  # of its sampling
PATIENCE_S = 10.0  # for a child that was told to end
SAID = 8000  # characters of what a child that failed said last
LEAST_S = 20.0  # that must be left of the budget to begin a target
THROTTLED = 0.05  # of the samples, at most
HERE = Path(__file__).parents[1]
# the most valuable first: what is true, what a user waits for, what is rented, what it is made of
WORTH = ("correctness/", "gpt2", "moe/decode", "decode/", "moe", "training/", "fp8/", "attention/")


def makers() -> dict[str, Any]:
    """Return the functions that build each benchmark, by name."""
    from benchmarks import gpu_baselines, gpu_comparisons, kernels

    ours = {f"kernels/{name}": make for name, make in kernels.BENCHMARKS.items()}
    return ours | gpu_comparisons.BENCHMARKS | gpu_baselines.BENCHMARKS


def targets(benchmarks: list[str], small: bool) -> list[str]:
    """Return all names by priority; suites are omitted if `small`."""

    def worth(name: str) -> int:
        places = [at for at, prefix in enumerate(WORTH) if name.startswith(prefix)]
        return places[0] if places else len(WORTH)

    return sorted([*benchmarks, *([] if small else gpu_suites.names())], key=worth)


def machine(device: torch.device) -> dict[str, Any]:
    """Describe device, commit, versions and peaks that the figures belong to."""
    hardware = probe(device)
    result = {
        "device": describe(device),
        "uuid": _uuid(device),
        "commit": commit(),
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
        "sensors": Sensors(device).read_sensors(),
    }
    memory.empty_cache(device)  # the benchmarks need it
    for package in ("triton", "transformers"):
        found = importlib.util.find_spec(package)
        result[package] = importlib.import_module(package).__version__ if found else None
    return result


def _uuid(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", "")) or None


def commit() -> str:
    """Return git's short commit name, or a digest of the files if they were changed."""
    words = ["git", "-C", str(HERE)]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        changed = subprocess.check_output(
            [*words, "status", "--porcelain", "--", "."], stderr=subprocess.DEVNULL
        )
        if not changed:
            name = subprocess.check_output([*words, "rev-parse", "--short=12", "HEAD"])
            return name.decode("ascii").strip()
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*.py")):
        digest.update(path.relative_to(HERE).as_posix().encode() + b"\0" + path.read_bytes())
    return f"sha256:{digest.hexdigest()[:12]}"


def run_child(name: str, device: torch.device, small: bool, out: Path) -> int:
    """Run one benchmark in this child process and write its outcome, or refusal, as JSON."""
    limits = {"pairs": 24, "at_least": 12, "budget_s": 0.5} if small else {}
    limits = {"pairs": 200, "budget_s": BUDGET_S, "precision": 0.01, **limits}
    start = time.monotonic()
    result: dict[str, Any] = {"target": name}
    try:
        torch.manual_seed(0)
        with torch.no_grad(), whole_float32():  # arms that need gradients switch them on
            with refusing():
                benchmark = makers()[name](device, small)
                outcome = run_benchmark(benchmark, **limits)
            result |= outcome.to_dict()
            if False in (outcome.goal_met, outcome.memory_goal_met):
                put(out, json.dumps(result | {"unprofiled": ""}))  # a profiler may take us along
                result |= profiles(benchmark)
    except RefusedError as refusal:
        print(f"{name}: refused: {refusal}", flush=True)
        result |= {"refused": str(refusal), "absent": refusal.absent}
    put(out, json.dumps(result | {"whole_s": time.monotonic() - start}))
    return 0


def profiles(benchmark: Benchmark) -> dict[str, Any]:
    """Profile both arms, or return why that failed."""
    try:
        found = {
            arm: profile_of(work, benchmark.device) for arm, work in arms_of(benchmark).items()
        }
    except Exception as error:  # the outcome is worth more
        return {"unprofiled": f"{type(error).__name__}: {error}"}
    return {"profile": found}


class RefusedError(Exception):
    """The benchmark cannot run here; the message says why. `absent`: a package is missing."""

    absent = False


@contextlib.contextmanager
def refusing() -> Any:
    """Convert the library's refusals in the block to RefusedError."""
    from benchmarks.cpu_comparisons import NotHereError
    from torchbridge.attention import PathRefused
    from torchbridge.kernels import KernelRefused

    try:
        yield
    except (NotHereError, PathRefused, KernelRefused) as error:
        refusal = RefusedError(str(error))
        refusal.absent = isinstance(error, NotHereError)
        raise refusal from error


def put(path: Path, text: str) -> None:
    """Write a file atomically."""
    whole = path.with_suffix(".part")
    whole.write_text(text)
    whole.replace(path)


def in_a_process(
    name: str, options: argparse.Namespace, most: float = float("inf")
) -> dict[str, Any]:
    """Run one target in its own process for at most `most` seconds; return its row.

    Errors are described in the row.
    """
    if name.startswith(gpu_suites.PREFIX):
        return suites_in_a_process(name, min(options.limit or gpu_suites.LIMIT_S, most))
    words = [sys.executable, "-m", "benchmarks.gpu", "--one", name, "--device", options.device]
    limit = min(options.limit or LIMITS_S.get(name, LIMIT_S), most)
    with tempfile.TemporaryDirectory(prefix="torchbridge-gpu-") as folder:
        out, log = Path(folder, "outcome.json"), Path(folder, "said")
        words += ["--out", str(out)] + (["--small"] if options.small else [])
        code = child(words, log, limit)
        output = log.read_text(errors="replace")
        print(output, end="", flush=True)
        why = f"still running after {limit:g} s" if code is None else ended(code)
        if code != 0:
            print(f"{name}: {why}", flush=True)
        if out.is_file():
            result = json.loads(out.read_text())
            return unthrottled(
                result | ({"unprofiled": why} if result.get("unprofiled") == "" else {})
            )
        result = {"target": name, "error": why}
        return result if code is None else result | {"error": output[-SAID:] or why, "exit": code}


def suites_in_a_process(name: str, limit: float) -> dict[str, Any]:
    """Run a target's pytest suites in a process; return the counts of its tests."""
    with tempfile.TemporaryDirectory(prefix="torchbridge-gpu-") as folder:
        log = Path(folder, "said")
        code = child(gpu_suites.words(name), log, limit)
        output = log.read_text(errors="replace")
    why = f"still running after {limit:g} s" if code is None else None
    if code not in (None, 0, 1):  # 1: tests failed
        why = f"{ended(code)}: {output[-SAID:]}"
    result = gpu_suites.row(name, output, why)
    print(
        f"{name}: {result['passed']} passed, {result['failed']} failed, {result['skipped']} skipped"
    )
    print(*result["failures"], *([why] if why else []), sep="\n", flush=True)
    return result


def unthrottled(result: dict[str, Any]) -> dict[str, Any]:
    """Return the row, or a rejected row if the device was throttled during its samples."""
    samples = result.get("samples", ())
    share = sum(one["readings"].get("throttled", 0.0) for one in samples) / max(1, len(samples))
    if share <= THROTTLED:
        return result
    why = f"throttled in {share:.0%} of the samples: not counted, and tried again"
    return {"target": result["target"], "rejected": why, "row": result}


def ended(code: int) -> str:
    """Describe how a failed process ended."""
    if code >= 0:
        return f"failed with {code}"
    hint = ", which the kernel sends for want of memory" if -code == signal.SIGKILL else ""
    return f"ended by {signal.Signals(-code).name}{hint}"


def child(words: list[str], log: Path, limit: float) -> int | None:
    """Run a command and return its exit code, or None if it was killed after `limit` seconds."""
    with log.open("wb") as output:
        streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": subprocess.STDOUT}
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
    """Wait until the parent closes the pipe, then kill this process group."""
    os.read(0, 1)
    os.killpg(os.getpid(), signal.SIGKILL)


def earlier(folder: Path, now: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of an earlier run in `folder` by target, if device and torch are the same."""
    try:
        then = json.loads((folder / "gpu.json").read_text())
    except FileNotFoundError:
        return {}
    whose = [(t["small"], t["machine"]["device"], t["machine"]["torch"]) for t in (then, now)]
    return {one["target"]: one for one in then["benchmarks"]} if whose[0] == whose[1] else {}


def settled(row: dict[str, Any], now: str) -> bool:
    """Return whether a row is complete at commit `now`."""
    return row.get("commit") == now and "error" not in row and "rejected" not in row


def missing(wanted: list[str], done: dict[str, Any], options: argparse.Namespace, now: str) -> list:
    """Return the targets to run, in order; those that failed before come last."""
    if options.only or options.anew:
        return wanted
    left = [name for name in wanted if name not in done or not settled(done[name], now)]
    return sorted(left, key=lambda name: "error" in done.get(name, ()))


def summarise(results: list[dict[str, Any]]) -> tuple[str, bool]:
    """Return the summary line, and whether anything ran and nothing failed."""
    held = [one for one in results if "ratio" in one]
    refused = sum("refused" in one for one in results)
    goals = [one["goal_met"] for one in held if one["goal"] is not None]
    goals += [one["memory_goal_met"] is True for one in held if one["memory_goal"] is not None]
    proved = [one for one in results if "passed" in one]
    proper = [one for one in proved if not one["failed"] and "error" not in one]
    broken = len(results) - len(held) - refused - len(proper)
    good = evidence.check(
        "gpu/held", held + proved != [] and broken == 0, value=len(held), unit="benchmarks"
    )
    figures = f"{len(held)} benchmarks held, {refused} refused, {broken} failed"
    if proved:
        tests = sum(one["passed"] for one in proved)
        figures = f"{tests} tests passed in {len(proper)} of {len(proved)} groups, {figures}"
    return f"gpu: {sum(goals)} of {len(goals)} goals met, {figures}", good


def measured(results: list[dict[str, Any]], options: argparse.Namespace) -> bool:
    """Print what was refused; return False if a package is missing and that is not allowed."""
    refused = [one for one in results if "refused" in one]
    if refused:
        print("refused:", ", ".join(one["target"] for one in refused))
    absent = [one["target"] for one in refused if one["absent"]]
    if not absent or options.allow_refused or not options.device.startswith("cuda"):
        return True
    print(f"No baseline here for {', '.join(absent)}: install it, or say --allow-refused")
    return False


def why_not(device: torch.device, small: bool) -> str | None:
    """Return why nothing can be measured on `device`; None if it can."""
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="All targets on the CUDA device of this machine")
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-results"), help="folder of the file and the page"
    )
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds in all")
    parser.add_argument("--anew", action="store_true", help="also what is settled")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a trial, no figures")
    parser.add_argument("--only", nargs="*", default=[], help="names, or how they begin")
    parser.add_argument("--limit", type=float, help="seconds per benchmark, instead of ours")
    parser.add_argument(
        "--allow-refused",
        action="store_true",
        help="pass though a baseline is not installed, as it always does on the CPU",
    )
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 if nothing failed, 2 without the device."""
    options = parse(arguments)
    device = torch.device(options.device)
    if reason := why_not(device, options.small):
        print(f"{reason}: nothing was measured.")
        return 2
    if options.one:
        threading.Thread(target=end_with_parent, daemon=True).start()
        return run_child(options.one, device, options.small, options.out)
    return everything(options, device)


def everything(options: argparse.Namespace, device: torch.device) -> int:
    """Run what is missing until the budget is spent; return 0 if all results are good."""
    until = time.monotonic() + options.budget
    result = {"schema": 1, "machine": machine(device), "small": options.small}
    now = result["machine"].get("commit", "")
    names = targets(list(makers()), options.small)
    wanted = [n for n in names if not options.only or n.startswith(tuple(options.only))]
    done = {} if options.anew and not options.only else earlier(options.out, result)
    left = missing(wanted, done, options, now)
    print(f"{len(left)} of {len(wanted)} targets, torchbridge {__version__}, {describe(device)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for count, name in enumerate(left):
        if until - time.monotonic() < LEAST_S:
            print(f"The budget is over, {len(left) - count} are left: run it again to go on")
            wanted = [one for one in wanted if one not in left[count:]]
            break
        done[name] = in_a_process(name, options, until - time.monotonic()) | {"commit": now}
        result["benchmarks"] = [done[n] for n in names if n in done]
        put(options.out / "gpu.json", json.dumps(result, indent=1))
        put(options.out / "gpu.md", page(result))
    results = [done[name] for name in wanted if name in done]
    whole = measured(results, options)
    line, good = summarise(results)
    print(f"{line}; {options.out / 'gpu.json'}, {options.out / 'gpu.md'}")
    return 0 if good and whole else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through every `finally`
    sys.exit(main())

"""Configurations: what making, detecting and validating them costs.

Iterations are iterations: every one is timed, and the device waited for. Arms are proven equal
before they are timed in turn. Run: `python -m benchmarks.config`.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable
from functools import partial

import torch

from torchbridge import __version__, evidence
from torchbridge.config import Config, NVIDIAConfig, detect_architecture
from torchbridge.device import describe, pick_device
from torchbridge.hardware import Hardware, probe
from torchbridge.timing import Comparison, Spread, compare, timed, warm_up
from torchbridge.validation import UnifiedValidator

CREATIONS, DETECTIONS, VALIDATIONS = 100, 50, 10  # iterations
LIMIT_MS = 1.0  # for making a configuration or telling an architecture
PRESETS: dict[str, Callable[[], Config]] = {
    "basic": Config,
    "inference": Config.for_inference,
    "training": Config.for_training,
    "development": Config.for_development,
}
CHIPS = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0))


def row(name: str, samples_s: list[float], **params: object) -> Spread:
    """Print and emit the times of some iterations, in ms."""
    samples = [1e3 * s for s in samples_s]
    spread = Spread.of(samples)
    evidence.metric(name, samples, unit="ms", direction="lower", iterations=len(samples), **params)
    print(
        f"  {name}: {spread.median:.4f} ms/iteration "
        f"({spread.low:.4f} to {spread.high:.4f}, {len(samples)} iterations)"
    )
    return spread


def ratio(name: str, result: Comparison, baseline: str) -> None:
    """Print and emit how many times faster the subject was than its baseline."""
    low, high = result.interval()
    evidence.metric(f"{name}/ratio", result.ratios, unit="x", direction="higher", baseline=baseline)
    middle = statistics.median(result.ratios)
    print(f"    {middle:.3f}x [{low:.3f}, {high:.3f}] against {baseline}")


def quick(name: str, spread: Spread) -> bool:
    """Is it within the limit that nobody notices?"""
    value = {"value": spread.median, "unit": "ms", "tolerance": LIMIT_MS}
    return evidence.check(f"{name}/limit", spread.median <= LIMIT_MS, **value)


def creation(device: torch.device, budget_s: float) -> bool:
    """Each preset, checks included, against a deep copy of one that is there."""
    good = True
    for kind, preset in PRESETS.items():
        ready, name = preset(), f"config/create/{kind}"
        if not evidence.check(f"{name}/arms_equal", preset() == copy.deepcopy(ready)):
            print(f"  {name}: the arms differ, nothing is timed")
            good = False
            continue
        arms = preset, lambda ready=ready: copy.deepcopy(ready)
        for arm in arms:
            warm_up(arm, device, budget_s=0.2)
        result = compare(*arms, device=device, pairs=CREATIONS, budget_s=budget_s)
        good &= quick(name, row(name, list(result.subject_s)))
        ratio(name, result, "deepcopy")
    return good


def detection(device: torch.device) -> bool:
    """Asking the device what it is, and telling the architecture from that."""
    name = "config/detect_architecture"

    def detect() -> object:
        return detect_architecture(probe(device))

    warm_up(detect, device, budget_s=0.2)
    samples = [timed(detect, device) for _ in range(DETECTIONS)]
    return quick(name, row(name, samples, architecture=detect().value))


def validation(device: torch.device) -> bool:
    """Five checks of each of the four; the first includes what a first use starts."""
    validator = UnifiedValidator(device=device)
    good = True
    for kind, preset in PRESETS.items():
        name, config = f"config/validate/{kind}", preset()
        work = partial(validator.validate_config, config)
        samples = [timed(work, device) for _ in range(1 + VALIDATIONS)]
        report = work()
        row(name, samples[1:], first_ms=1e3 * samples[0])
        print(f"    first {1e3 * samples[0]:.2f} ms, {report.score} checks pass")
        good &= evidence.check(name, report.ok, reason=", ".join(report.names("fail")) or "none")
    return good


def features() -> bool:
    """What the chips' capabilities say, and that settings for them survive being written."""
    good = True
    for capability in CHIPS:
        chip = Hardware.nvidia(capability)
        told = NVIDIAConfig().on(chip)
        same = NVIDIAConfig.from_dict(told.to_dict()) == told
        right = told.fp8_enabled == (capability >= (8, 9))
        good &= evidence.check(f"config/features/{chip.target}", same and right)
        print(
            f"  {chip.target}: {told.architecture.value}, tensor cores of generation "
            f"{chip.tensor_core_generation}, FP8 {'on' if told.fp8_enabled else 'off'}"
        )
    return good


def main(arguments: list[str] | None = None) -> int:
    """All parts; 0 if every check passed."""
    parser = argparse.ArgumentParser(description="What configurations cost")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds per comparison")
    options = parser.parse_args(arguments)
    device = pick_device()
    print(f"Configuration benchmarks, torchbridge {__version__}, {describe(device)}")
    print(f"\nCreation, {CREATIONS} iterations each")
    results = [creation(device, options.budget)]
    print(f"\nArchitecture detection, {DETECTIONS} iterations")
    results.append(detection(device))
    print("\nValidation of four configurations, 5 checks each")
    results.append(validation(device))
    print("\nNVIDIA features by compute capability")
    results.append(features())
    print(f"\n{sum(results)}/{len(results)} parts passed their checks")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The learning rate of a step."""

from __future__ import annotations

import math

from torchbridge.train.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """The rate of `step`, counted from 0, of `steps` in all.

    It rises linearly over `warmup_steps`, reaching the full rate with the last of them, then stays,
    or falls to zero, which the step after the last one would have.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.schedule == "linear":
        return config.learning_rate * (1 - done)
    if config.schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * done)) / 2
    return config.learning_rate

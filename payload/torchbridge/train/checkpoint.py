"""Save and load all state that the next training step depends on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchbridge.train.loop import Trainer


def save(trainer: Trainer, path: Path) -> None:
    """Write the trainer's state to a file atomically.

    The state is settings, weights, optimizer, scaler, random states, losses and gradient norms.
    """
    state = {
        "settings": _settings(trainer),
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scaler": trainer.scaler.state_dict(),
        "random": _random_states(trainer.device),
        "losses": trainer.losses,
        "gradient_norms": trainer.gradient_norms,
    }
    unfinished = path.with_name(path.name + ".part")
    torch.save(state, unfinished)
    unfinished.replace(path)


def load(trainer: Trainer, path: Path) -> None:
    """Restore the state that `save` wrote.

    Raises:
        ValueError: a setting, such as the number of steps, differs; `trainer` is then unchanged.
    """
    state = torch.load(path, map_location="cpu", weights_only=True)
    ours, theirs = _settings(trainer), state["settings"]
    for name in ours:
        if ours[name] != theirs.get(name):
            raise ValueError(
                f"{path.name} was written with {name}={theirs.get(name)}, not {ours[name]}"
            )
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.scaler.load_state_dict(state["scaler"])
    trainer.losses = [loss.to(trainer.device) for loss in state["losses"]]
    trainer.gradient_norms = [norm.to(trainer.device) for norm in state["gradient_norms"]]
    trainer.rewire()
    _set_random_states(trainer.device, state["random"])


def _settings(trainer: Trainer) -> dict[str, str]:
    """Return the settings that must be equal to resume a run exactly, as text by name."""
    settings = asdict(trainer.config) | {"total_steps": trainer.total_steps}
    settings |= {"precision": trainer.precision.dtype, "fused": trainer.unfused is None}
    return {name: repr(value) for name, value in settings.items()}


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    module = _random_module(device)
    return states | ({device.type: module.get_rng_state(device)} if module else {})


def _set_random_states(device: torch.device, states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    module = _random_module(device)
    if module and device.type in states:
        module.set_rng_state(states[device.type], device)


def _random_module(device: torch.device) -> Any:
    """Return the torch module with the device's random state (torch.cuda, torch.xpu), or None."""
    return {"cuda": torch.cuda, "xpu": torch.xpu}.get(device.type)

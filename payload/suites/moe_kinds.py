"""Layers of every kind by every way, and when a way is not there."""

from __future__ import annotations

import pytest
import torch

from torchbridge import moe
from torchbridge.moe import MoEConfig, MoELayer
from torchbridge.moe.grouped import why_not

STILL = {"expert_dropout": 0.0, "router_dropout": 0.0, "activation": "silu"}
KINDS = [*moe.LAYERS, "attention", "dynamic", "hash", "learned"]
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def layer_of(device, dtype, dispatch, hidden=32, expert_hidden=64, kind="standard", **settings):
    """A layer of a kind, or a standard one with experts or a router of that kind."""
    config = MoEConfig(**{**STILL, "dispatch": dispatch, **settings})
    if kind in moe.LAYERS:
        layer = moe.create_moe_layer(kind, hidden, expert_hidden, config=config)
    elif kind in moe.ROUTERS:
        router = moe.create_router(kind, hidden, config=config)
        layer = MoELayer(config, hidden, expert_hidden, router=router)
    else:
        layer = MoELayer(config, hidden, expert_hidden, expert_type=kind)
    return layer.to(device, dtype)


def skip_without(device, dtype, dispatch) -> None:
    """Skip where torch has no grouped kernel; one that computes wrong numbers is a failure."""
    reason = why_not(device, dtype, (32, 64)) if dispatch == "grouped_mm" else None
    if reason:
        assert "wrong numbers" not in reason, reason
        pytest.skip(reason)


def skip_kind(kind: str) -> None:
    if kind == "attention":
        pytest.skip("only feed-forward experts have a grouped form")

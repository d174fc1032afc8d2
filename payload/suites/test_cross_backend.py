"""The references of the use cases UC3 and UC5, and that the checks notice differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from suites.numerics import relative_error
from torchbridge.backends import create_backend
from torchbridge.validation import failed, warned
from use_cases import ci_validation, cross_backend
from use_cases.cross_backend import Block, Difference


@pytest.fixture
def events(evidence):
    """Return a function that reads the evidence so far, by the names of the checks."""
    return lambda: {one["check"]: one for one in evidence()}


def explicit(block: Block, x: torch.Tensor) -> torch.Tensor:
    """Return the block's output for x [B, S, d] by its formulas, in float64."""
    block = block.double()
    x = x.double() @ block.project.weight.T + block.project.bias
    q, k, v = (x @ block.attention.in_proj_weight.T + block.attention.in_proj_bias).chunk(3, -1)
    heads = [t.unflatten(-1, (cross_backend.HEADS, -1)).transpose(1, 2) for t in (q, k, v)]
    scores = heads[0] @ heads[1].mT / math.sqrt(heads[0].shape[-1])
    mixed = (scores.softmax(-1) @ heads[2]).transpose(1, 2).flatten(2)
    out = block.attention.out_proj
    x = normed(x + mixed @ out.weight.T + out.bias)
    hidden = x @ block.up.weight.T + block.up.bias
    gelu = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    return normed(x + gelu @ block.down.weight.T + block.down.bias)


def normed(x: torch.Tensor) -> torch.Tensor:
    """Return LayerNorm of x with its initial parameters: without scale and shift."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@torch.no_grad()
def test_the_reference_is_the_formula():
    block, x = Block().eval(), torch.randn(2, 8, 256)
    assert sum(p.numel() for p in block.parameters()) == 855_552
    assert relative_error(block.double()(x.double()), explicit(block, x)) <= 1e-12


def test_differences():
    expected = torch.tensor([4.0, -2.0], dtype=torch.float64)
    assert Difference.between(torch.tensor([4.0, -1.0]), expected) == Difference(0.25, 0.125)
    assert Difference.between(torch.tensor([4.0, torch.nan]), expected).most == math.inf


@torch.no_grad()
def test_every_backend_agrees(events, capsys):
    assert cross_backend.main() == 0
    checks = events()
    assert {one["outcome"] for one in checks.values()} <= {"passed", "skipped"}
    wide = {name: one for name, one in checks.items() if name.endswith("/float32")}
    assert all(one["value"] <= one["tolerance"] == 1e-5 for one in wide.values())
    assert "cross_backend/cpu/float32" in wide
    assert "model validation (standard), cpu: 5/5" in capsys.readouterr().out


@torch.no_grad()
def test_a_wrong_backend_is_noticed(events, device):
    class Wrong(type(create_backend(device=device))):
        def prepare_model(self, model, **options):
            model.norms[1].weight.mul_(1.001)
            return super().prepare_model(model, **options)

    block, x = Block().eval(), torch.randn(2, 8, 256)
    assert not cross_backend.consistent(Wrong(device=device), block, x)
    check = events()[f"cross_backend/{Wrong.name}/float32"]
    assert (check["outcome"], check["value"]) == ("failed", pytest.approx(1e-3, rel=0.05))


@torch.no_grad()
def test_a_wrong_device_is_noticed(events, device):
    model = nn.Sequential(nn.Linear(512, 512))
    assert ci_validation.consistency(model, [device])[str(device)]["status"] == "pass"
    model.register_forward_hook(lambda m, i, y: y * (1.001 if y.dtype == torch.float32 else 1.0))
    assert ci_validation.consistency(model, [device])[str(device)]["status"] == "fail"
    check = events()[f"ci/consistency/{device}"]
    assert (check["outcome"], check["value"]) == ("failed", pytest.approx(1e-3, rel=0.01))


def test_failures_are_found_wherever_they_are():
    findings = [failed("no", "mend").to_dict() | {"name": "b"}, warned("hm", "look").to_dict()]
    results = {"a": {"findings": findings}, "c": {"status": "fail"}, "d": {"status": "skipped"}}
    assert ci_validation.failures(results) == ["a/findings/b/status", "c/status"]
    assert ci_validation.failures({"d": {"status": "pass"}}) == []

"""What Transformer Engine is asked for, by a fake that refuses what the real one refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites.fp8_fakes import Format, fake_transformer_engine
from suites.fp8_reference import mlp
from suites.numerics import needs_module, rms_error
from torchbridge import fp8
from torchbridge.fp8 import FP8Config, FP8Format, FP8LinearLayer, FP8TrainingEngine
from torchbridge.fp8 import transformer_engine as path
from torchbridge.hardware import probe

E4M3, E5M2 = FP8Format


class TestRecipe:
    @pytest.mark.parametrize("algorithm", ["max", "most_recent"])
    @pytest.mark.parametrize(
        ("formats", "name"),
        [((E4M3, E5M2), "HYBRID"), ((E4M3, E4M3), "E4M3"), ((E5M2, E5M2), "E5M2")],
    )
    def test_delayed(self, formats, name, algorithm):
        te = fake_transformer_engine()
        config = FP8Config(
            *formats, "delayed", amax_history_len=16, margin=1, amax_compute_algo=algorithm
        )
        path.recipe(config, te)
        arguments = {
            "margin": 1,
            "fp8_format": Format[name],
            "amax_history_len": 16,
            "amax_compute_algo": algorithm,
            "scaling_factor_compute_algo": None,  # a function or None: a word is refused
        }
        assert te.calls == [("DelayedScaling", arguments)]

    def test_dynamic(self):
        te = fake_transformer_engine()
        path.recipe(FP8Config(), te)
        assert te.calls == [("Float8CurrentScaling", {"fp8_format": Format.HYBRID})]

    def test_what_it_has_not_is_refused(self):
        te = fake_transformer_engine(current=False)
        with pytest.raises(ValueError, match="scaling='delayed'"):
            path.recipe(FP8Config(), te)
        with pytest.raises(ValueError, match="E5M2/E4M3"):
            path.recipe(FP8Config(E5M2, E4M3, "delayed"), te)
        for settings in ({"granularity": "row"}, {"path": "dequantised"}):
            with pytest.raises(ValueError, match="one scale per tensor"):
                path.recipe(FP8Config(**settings), te)
        with pytest.raises(ValueError, match="E5M2/E4M3"):
            FP8TrainingEngine(mlp(torch.device("cpu")), FP8Config(E5M2, E4M3), te=te).setup()


class TestEngine:
    def test_layers_and_autocast(self, device):
        te = fake_transformer_engine()
        model = mlp(device)  # 64 -> 128 -> 10: ten is no multiple of 16, and stays
        parameters, last = list(model.parameters()), model[2]
        engine = FP8TrainingEngine(model, FP8Config(scaling="delayed"), te=te)
        assert (engine.path_taken, engine.fallback) == ("transformer_engine", None)
        with engine:
            assert isinstance(model[0], te.pytorch.Linear)
            assert model[2] is last
            assert list(map(id, model.parameters())) == list(map(id, parameters))
            x, target = torch.randn(8, 64, device=device), torch.randn(8, 10, device=device)
            engine.training_step(x, target)
            assert engine.optimizer_step(torch.optim.SGD(model.parameters(), lr=0.1))
        assert [type(one) for one in (model[0], model[2])] == [nn.Linear, nn.Linear]
        calls = dict(te.calls)
        assert calls["Linear"] == {"widths": (64, 128), "bias": True}
        assert calls["fp8_autocast"]["enabled"] is True
        assert calls["forward"]["within"] == [calls["fp8_autocast"]["fp8_recipe"]]
        assert calls["fp8_autocast"]["fp8_recipe"].amax_history_len == 1024

    def test_statistics(self, device):
        te = fake_transformer_engine()
        engine = FP8TrainingEngine(mlp(device), FP8Config(), te=te).setup()
        found = engine.statistics()
        assert (found["layers"], found["path_taken"]) == (1, "transformer_engine")
        assert (found["scales"], found["saturated"]) == ({}, 0)

    def test_its_absence_is_told(self, device):
        engine = fp8.create_fp8_trainer(mlp(device))
        wanted = path.why_not(device, FP8Config())
        if wanted is None:
            pytest.skip("transformer_engine is installed, and this device is its")
        assert (engine.path_taken, engine.fallback) == ("native", wanted)
        assert engine.statistics()["fallback"] == wanted
        assert type(engine.model[0]) is FP8LinearLayer
        assert fp8.create_fp8_trainer(mlp(device), use_te_linear=False).fallback is None

    @needs_module("transformer_engine")
    def test_the_real_one(self, device):
        if (reason := path.why_not(device, FP8Config())) is not None:
            pytest.skip(reason)
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).to(device)
        x, target = torch.randn(16, 64, device=device), torch.randn(16, 32, device=device)
        plain = model(x).detach()
        with FP8TrainingEngine(model, FP8Config(scaling="delayed", margin=0)) as engine:
            with path.autocast(engine.config, engine.te):
                assert rms_error(engine.model(x), plain) <= 0.1
            engine.training_step(x, target)
            assert engine.optimizer_step(torch.optim.SGD(model.parameters(), lr=0.1))
        assert probe(device).has("fp8")

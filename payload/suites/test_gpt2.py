"""GPT-2: its sizes, its weights, Hugging Face's model with the same weights, generation."""

from __future__ import annotations

import pytest
import torch

from suites import gpt2_reference as ref
from suites.gpt2_reference import SMALL, lively, prompts
from suites.numerics import assert_close, needs_module
from torchbridge.llm import (
    GPT2,
    GPT2Config,
    KVCache,
    Sampling,
    attention_path,
    generate,
    load_hf_weights,
    prefill,
)

HF_SIZES = [  # vocabulary, positions, layers, heads, width
    (61, 32, 1, 1, 8),
    (97, 64, 3, 4, 32),
    (211, 48, 2, 8, 64),
]


def hf_model(config: GPT2Config):
    """Return Hugging Face's GPT-2 of the same sizes with random weights; nothing is downloaded."""
    import transformers

    sizes = {"vocab_size": config.vocabulary, "n_positions": config.positions}
    sizes |= {"n_layer": config.layers, "n_head": config.heads, "n_embd": config.width}
    sizes |= {"layer_norm_epsilon": config.layer_norm_epsilon}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # also the biases, initially zero
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class TestConfig:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"width": 30, "heads": 4}, "divisible by heads"),
            ({"layers": 0}, "layers must be at least 1"),
            ({"vocabulary": -1}, "vocabulary must be at least 1"),
            ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ],
    )
    def test_bad_sizes_are_refused(self, settings, message):
        with pytest.raises(ValueError, match=message):
            GPT2Config(**settings)


class TestParameters:
    def test_default_is_the_124m_model(self):
        with torch.device("meta"):  # sizes without the memory
            model = GPT2()
        assert sum(p.numel() for p in model.parameters()) == 124_439_808 == GPT2Config().parameters

    @pytest.mark.parametrize(("vocabulary", "positions", "layers", "heads", "width"), HF_SIZES)
    def test_computed_equals_observed(self, vocabulary, positions, layers, heads, width):
        sizes = {"vocabulary": vocabulary, "positions": positions, "layers": layers}
        config = GPT2Config(**sizes, heads=heads, width=width)
        assert sum(p.numel() for p in GPT2(config).parameters()) == config.parameters

    def test_same_generator_same_weights(self):
        first, second = (GPT2(SMALL, torch.Generator().manual_seed(5)) for _ in range(2))
        other = GPT2(SMALL, torch.Generator().manual_seed(6))
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(a, b)
        assert not torch.equal(first.tokens.weight, other.tokens.weight)

    def test_drawn_as_gpt2_draws(self):
        config = GPT2Config(vocabulary=500, positions=256, layers=8, heads=4, width=128)
        weights = dict(GPT2(config).named_parameters())
        narrow = 0.02 / (2 * 8) ** 0.5
        for name in ("tokens.weight", "positions.weight", "blocks.3.attention.qkv.weight"):
            assert weights[name].std().item() == pytest.approx(0.02, rel=0.03)
        for name in ("blocks.0.attention.out.weight", "blocks.7.down.weight"):
            assert weights[name].std().item() == pytest.approx(narrow, rel=0.03)
        assert weights["blocks.2.up.bias"].abs().max().item() == 0
        assert (weights["norm.weight"] == 1).all()


class TestAgainstHuggingFace:
    pytestmark = needs_module("transformers")

    @pytest.mark.parametrize(("vocabulary", "positions", "layers", "heads", "width"), HF_SIZES)
    def test_logits(self, device, vocabulary, positions, layers, heads, width):
        sizes = {"vocabulary": vocabulary, "positions": positions, "layers": layers}
        config = GPT2Config(**sizes, heads=heads, width=width)
        theirs = hf_model(config).to(device)
        ours = load_hf_weights(GPT2(config), theirs).to(device).eval()
        for batch, tokens in ((1, 1), (3, 17), (2, positions)):
            ids = prompts(batch, tokens, device, config)
            with torch.no_grad():
                assert (ours(ids) - theirs(ids).logits).abs().max().item() <= 1e-4

    def test_greedy_tokens(self, device):
        theirs = hf_model(SMALL).to(device)
        ours = load_hf_weights(GPT2(SMALL), theirs).to(device).eval()
        ids = prompts(2, 9, device)
        mask = torch.ones_like(ids)
        settings = {"do_sample": False, "max_new_tokens": 30, "attention_mask": mask}
        expected = theirs.generate(ids, **settings)
        assert len(expected[0].unique()) > 10  # not one repeated token
        assert torch.equal(generate(ours, ids, 30), expected)

    def test_without_the_head(self):
        theirs = hf_model(SMALL)
        ours = load_hf_weights(GPT2(SMALL), theirs.transformer)  # a GPT2Model: no prefix, no head
        assert torch.equal(ours.tokens.weight, theirs.lm_head.weight)

    def test_full_size(self, device):
        theirs = hf_model(GPT2Config()).to(device)
        with torch.device("meta"):
            ours = GPT2()
        ours = load_hf_weights(ours.to_empty(device=device), theirs).eval()
        ids = torch.randint(0, 50257, (1, 24), device=device)
        with torch.no_grad():
            assert (ours(ids) - theirs(ids).logits).abs().max().item() <= 1e-4


class TestWeightsAreRefused:
    def state(self, **changes: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a state_dict in Hugging Face's names for one layer of width 2, with `changes`."""
        names = {"wte.weight": (5, 2), "wpe.weight": (4, 2), "ln_f.weight": (2,), "ln_f.bias": (2,)}
        for part, shape in (("attn.c_attn", (2, 6)), ("attn.c_proj", (2, 2))):
            names |= {f"h.0.{part}.weight": shape, f"h.0.{part}.bias": shape[1:]}
        for part, shape in (("mlp.c_fc", (2, 8)), ("mlp.c_proj", (8, 2))):
            names |= {f"h.0.{part}.weight": shape, f"h.0.{part}.bias": shape[1:]}
        for part in ("ln_1", "ln_2"):
            names |= {f"h.0.{part}.weight": (2,), f"h.0.{part}.bias": (2,)}
        return {name: torch.randn(shape) for name, shape in names.items()} | changes

    def model(self) -> GPT2:
        """Return the library's GPT-2 with the sizes of `state`."""
        return GPT2(GPT2Config(vocabulary=5, positions=4, layers=1, heads=1, width=2))

    def test_layers_are_turned(self):
        state = self.state()
        model = load_hf_weights(self.model(), state)  # works without transformers
        assert torch.equal(model.blocks[0].up.weight, state["h.0.mlp.c_fc.weight"].T)
        assert torch.equal(model.blocks[0].attention.out.weight, state["h.0.attn.c_proj.weight"].T)
        assert torch.equal(model.blocks[0].norm2.bias, state["h.0.ln_2.bias"])
        old = state | {"h.0.attn.bias": torch.ones(1, 1, 4, 4)}  # old files store the mask
        assert torch.equal(load_hf_weights(self.model(), old).norm.weight, model.norm.weight)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("h.0.mlp.c_fc.weight", torch.zeros(8, 2), "blocks.0.up.weight"),
            ("h.1.ln_1.bias", torch.zeros(2), "blocks.1.norm1.bias"),
            ("h.0.mlp.c_gate.weight", torch.zeros(2, 2), "c_gate"),
            ("lm_head.weight", torch.zeros(5, 2), "tied head"),
        ],
    )
    def test_what_does_not_fit(self, name, value, message):
        model = self.model()
        before = model.tokens.weight.clone()
        with pytest.raises(ValueError, match=message):
            load_hf_weights(model, self.state(**{name: value}))
        assert torch.equal(model.tokens.weight, before)

    def test_what_is_missing(self):
        state = self.state()
        del state["ln_f.bias"]
        with pytest.raises(ValueError, match=r"norm\.bias"):
            load_hf_weights(self.model(), state)


class TestGenerate:
    def test_prompt_stays_and_length_is_exact(self, device, model):
        ids = prompts(3, 4, device)
        tokens = generate(model, ids, 9)
        assert tokens.shape == (3, 13)
        assert torch.equal(tokens[:, :4], ids)
        assert torch.equal(generate(model, ids, 0), ids)
        assert torch.equal(generate(model, ids, 4), tokens[:, :8])  # a shorter run is a prefix

    def test_fills_all_positions(self, device, model):
        ids = prompts(1, 60, device)
        assert torch.equal(generate(model, ids, 5).cpu(), ref.greedy(model, ids, 5))  # 64 are fed
        with pytest.raises(ValueError, match=r"capacity must be in 1\.\.64.*got 65"):
            generate(model, ids, 6)

    def test_prefill_is_the_last_position(self, device, model):
        ids = prompts(2, 13, device)
        logits = prefill(model, ids, KVCache.for_model(model, 2, 13))
        assert_close(logits, ref.logits(model, ids)[:, -1:])

    def test_training_mode_is_refused(self, device):
        model = lively().to(device).train()
        with pytest.raises(ValueError, match=r"model\.eval\(\)"):
            generate(model, prompts(1, 4, device), 2)

    def test_nothing_to_start_from_is_refused(self, device):
        with pytest.raises(ValueError, match="needs a prompt"):
            generate(lively().to(device), prompts(1, 0, device), 2)

    def test_attention_path_is_what_ran(self, device, model):
        path = attention_path(model, prompts(1, 8, device))
        assert path.startswith("prefill ")
        if device.type == "cpu":
            assert path.count("scaled_dot_product_flash_attention_for_cpu") == 2
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            assert attention_path(model, prompts(1, 8, device)) == "prefill math; decode math"

    def test_seeded_sampling_repeats(self, device, model):
        ids = prompts(2, 5, device)

        def draw(seed: int) -> torch.Tensor:
            generator = torch.Generator(device).manual_seed(seed)
            sampling = Sampling(temperature=1.3, top_k=40)
            return generate(model, ids, 25, sampling=sampling, generator=generator)

        assert torch.equal(draw(3), draw(3))
        assert not torch.equal(draw(3), draw(4))

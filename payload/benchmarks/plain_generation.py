"""GPT-2 124M with the same random weights for all arms, and the baselines of our generation.

Nothing is downloaded: weights are random, the prompt is token ids.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from torchbridge.llm import GPT2, GPT2Config, load_hf_weights

TEXT = "The future of artificial intelligence is"
PROMPT = (464, 2003, 286, 11666, 4430, 318)  # the same, in GPT-2's tokens

Generate = Callable[[Tensor, int], Tensor]  # ids [B, T], new tokens -> [B, T + new tokens]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline: its name and generation, and our model with its weights.

    `loops` are hand-written loops with the same weights, by name: `hf_kv_loop` around transformers'
    model, or `plain_kv_loop` if transformers is missing.
    """

    name: str
    generate: Generate
    model: GPT2
    loops: Mapping[str, Generate]


def make_baseline(config: GPT2Config, device: torch.device) -> Baseline:
    """Return transformers' generate() with its KV cache if installed, else a plain loop."""
    torch.manual_seed(0)
    if importlib.util.find_spec("transformers") is None:
        model = _stirred(GPT2(config)).to(device).eval()
        plain = partial(plain_kv_loop, copy.deepcopy(model))  # ours may be changed in place
        return Baseline("plain_kv_loop", plain, model, {"plain_kv_loop": plain})
    theirs = _stirred(_hf_model(config)).to(device).eval()
    with torch.device("meta"):
        ours = GPT2(config)
    ours = load_hf_weights(ours.to_empty(device=device), theirs).eval()
    loops = {"hf_kv_loop": partial(hf_kv_loop, theirs)}
    return Baseline("hf_generate", partial(hf_generate, theirs), ours, loops)


@torch.no_grad()
def hf_kv_loop(model: nn.Module, ids: Tensor, new_tokens: int) -> Tensor:
    """Decode greedily by transformers' model and DynamicCache, without generate()'s overhead."""
    from transformers import DynamicCache

    tokens, fed, cache = ids, ids, DynamicCache()
    for _ in range(new_tokens):
        logits = model(fed, past_key_values=cache, use_cache=True).logits
        fed = logits[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, fed], dim=1)
    return tokens


def hf_generate(model: nn.Module, ids: Tensor, new_tokens: int) -> Tensor:
    """Decode greedily by generate() with transformers' default cache and attention."""
    settings = {"do_sample": False, "use_cache": True, "attention_mask": torch.ones_like(ids)}
    return model.generate(ids, max_new_tokens=new_tokens, **settings)


@torch.no_grad()
def plain_kv_loop(model: GPT2, ids: Tensor, new_tokens: int) -> Tensor:
    """Decode greedily with a KV cache that grows by concatenation."""
    cache = _GrowingCache(len(model.blocks))
    tokens, fed = ids, ids
    for _ in range(new_tokens):
        places = torch.arange(tokens.shape[1] - fed.shape[1], tokens.shape[1], device=ids.device)
        x = model.tokens(fed) + model.positions(places)
        for layer, block in enumerate(model.blocks):
            x = block(x, partial(cache.extend, layer))
        fed = model.tokens.logits(model.norm(x))[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, fed], dim=1)
    return tokens


class _GrowingCache:
    def __init__(self, layers: int) -> None:
        self.kept: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, None]:
        before = self.kept[layer]
        if before is not None:
            keys = torch.cat([before[0], keys], dim=2)
            values = torch.cat([before[1], values], dim=2)
        self.kept[layer] = keys, values
        return keys, values, None


def _hf_model(config: GPT2Config) -> nn.Module:
    import transformers

    sizes = {"vocab_size": config.vocabulary, "n_positions": config.positions}
    sizes |= {"n_layer": config.layers, "n_head": config.heads, "n_embd": config.width}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}  # none ends a text early
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends))


@torch.no_grad()
def _stirred(model: nn.Module) -> nn.Module:
    """Widen the matrices in place, so that each token depends on those before; return the model."""
    for name, parameter in model.named_parameters():
        if name.endswith(("positions.weight", "wpe.weight")):
            parameter.mul_(3.0)
        elif parameter.dim() == 2 and not name.endswith(("tokens.weight", "wte.weight")):
            parameter.mul_(4.0)
    return model

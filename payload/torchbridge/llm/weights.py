"""Copy weights of Hugging Face's GPT-2 into `GPT2`; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from torchbridge.llm.gpt2 import GPT2

_TABLES = {"wte.weight": "tokens.weight", "wpe.weight": "positions.weight"}
_BLOCK = {
    "ln_1": "norm1",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.out",
    "ln_2": "norm2",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
}
_NORMS = ("ln_1", "ln_2")


def load_hf_weights(model: GPT2, source: nn.Module | Mapping[str, Tensor]) -> GPT2:
    """Copy the weights of a GPT2LMHeadModel or GPT2Model, or of its state dict, into `model`.

    Raises:
        ValueError: weights are missing, unknown or of another shape; `model` is then unchanged.
    """
    state = source.state_dict() if isinstance(source, nn.Module) else source
    theirs = {name.removeprefix("transformer."): value for name, value in state.items()}
    head = theirs.pop("lm_head.weight", None)
    if head is not None and not torch.equal(head, theirs.get("wte.weight", head)):
        raise ValueError("lm_head.weight is not wte.weight: only a tied head can be loaded")
    ours = {}
    for name in sorted(theirs):
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue  # buffers of old versions: the causal mask
        value = theirs[name].detach()
        # their layers hold [in, out], ours [out, in]
        ours[_our_name(name)] = value.T if _is_product(name) else value
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    given = {name: value.shape for name, value in ours.items()}
    if wanted != given:
        differing = sorted(n for n in wanted | given if wanted.get(n) != given.get(n))
        raise ValueError(f"weights do not fit this model: {', '.join(differing[:5])}")
    model.load_state_dict(ours)
    return model


def _our_name(name: str) -> str:
    if name in _TABLES:
        return _TABLES[name]
    parts = name.split(".")
    if parts[0] == "ln_f":
        return f"norm.{parts[-1]}"
    inner = _BLOCK.get(".".join(parts[2:-1]))
    return f"blocks.{parts[1]}.{inner}.{parts[-1]}" if inner else name


def _is_product(name: str) -> bool:
    return name.startswith("h.") and name.endswith(".weight") and name.split(".")[2] not in _NORMS

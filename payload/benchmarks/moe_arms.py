"""Baselines of the MoE layer; every one computes the same as the layer.

T tokens, k choices each, E experts, width d. Importing this module does not import transformers.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from torchbridge import evidence
from torchbridge.bench import Arm, Benchmark, Equality, Work, close_to
from torchbridge.graphs import CudaGraphs, why_no_graphs
from torchbridge.moe import MoEConfig, MoELayer
from torchbridge.moe.dispatch import path_for
from torchbridge.moe.paths import FEW_ROWS

TOLERANCE = 1e-5  # relative error between float32 arms
TOLERANCES = {torch.float32: TOLERANCE, torch.bfloat16: 2e-2}
HF_IMPLEMENTATIONS = ("eager", "grouped_mm")
WARM_UPS = 3


class SwiGLUMoE(MoELayer):
    """MoE layer with Mixtral's experts: silu(a) * b of two projections."""

    gated = True


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one measurement, which are the parameters of its metrics."""

    hidden: int
    expert_hidden: int
    experts: int = 8
    top_k: int = 2
    batch: int = 32
    sequence: int = 128
    dtype: str = "float32"

    @property
    def tokens(self) -> int:
        """Number of tokens in one batch."""
        return self.batch * self.sequence

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype named by `dtype`."""
        return getattr(torch, self.dtype)

    @classmethod
    def gated(cls, hidden: int, **sizes) -> Shape:
        """Return sizes of gated experts with as many operations as two matrices of 4 * hidden."""
        return cls(hidden, round(8 * hidden / 3 / 64) * 64, **sizes)


def mask_loop(layer: MoELayer, x: Tensor) -> Tensor:
    """Loop over the experts and compute the tokens of each: x [T, d] -> [T, d].

    `layer` has feed-forward experts with relu and biases, and is in evaluation mode.
    """
    bank, routing = layer.experts, layer.router(x)
    indices, weights = routing["expert_indices"], routing["expert_weights"].to(x.dtype)
    output = torch.zeros_like(x)
    for expert in range(len(bank)):
        token, choice = torch.where(indices == expert)
        if token.numel() == 0:
            continue
        hidden = torch.relu(x[token] @ bank.up[expert].T + bank.up_bias[expert])
        rows = hidden @ bank.down[expert].T + bank.down_bias[expert]
        output.index_add_(0, token, rows * weights[token, choice, None])
    return output


def dense_all_experts(layer: MoELayer, x: Tensor) -> Tensor:
    """Compute every expert on every token with weight 0 if not chosen; see `mask_loop`."""
    bank, routing = layer.experts, layer.router(x)
    shares = x.new_zeros(x.shape[0], len(bank))
    shares.scatter_(1, routing["expert_indices"], routing["expert_weights"].to(x.dtype))
    output = torch.zeros_like(x)
    for expert in range(len(bank)):
        hidden = torch.relu(x @ bank.up[expert].T + bank.up_bias[expert])
        rows = hidden @ bank.down[expert].T + bank.down_bias[expert]
        output += rows * shares[:, expert, None]
    return output


def plain_grouped_mm(layer: MoELayer, x: Tensor) -> Tensor:
    """Compute a gated layer by torch's grouped product, as a user would: x [T, d] -> [T, d].

    The router is a plain softmax and top-k. Nothing synchronises.
    """
    bank, top_k = layer.experts, layer.config.top_k
    probs = F.linear(x.float(), layer.router.gate.weight.float()).softmax(dim=-1)
    weights, experts = probs.topk(top_k, dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    chosen = experts.flatten()
    order = chosen.argsort(stable=True)
    numbers = torch.arange(len(bank), device=x.device)
    ends = (chosen[:, None] == numbers).sum(dim=0).cumsum(0).to(torch.int32)
    hidden = F.grouped_mm(x[order // top_k], bank.up.mT, offs=ends)
    gate, value = hidden.chunk(2, dim=-1)
    rows = F.grouped_mm(F.silu(gate) * value, bank.down.mT, offs=ends)
    rows = rows * weights.flatten()[order, None].to(rows.dtype)
    return torch.zeros_like(x).index_add(0, order // top_k, rows)


def why_no_hf() -> str | None:
    """Return why transformers' Mixtral experts cannot be a baseline here; None if they can."""
    try:
        mixtral = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
    except ImportError as error:
        return f"transformers cannot be imported: {error}"
    missing = [n for n in ("MixtralExperts", "MixtralTopKRouter") if not hasattr(mixtral, n)]
    return f"this transformers has no {missing[0]}" if missing else None


def hf_arms(layer: MoELayer, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return transformers' Mixtral experts by implementation; calls map x [T, d] to [T, d].

    `layer` is a `SwiGLUMoE` without biases, with silu; they have copies of its weights. Routers get
    float32, because in bfloat16 they would choose other experts.

    Raises:
        ImportError: see `why_no_hf`.
    """
    if reason := why_no_hf():
        raise ImportError(reason)
    return {name: partial(_hf_forward, *_hf_parts(layer, name), x) for name in HF_IMPLEMENTATIONS}


def hf_trained(
    layer: MoELayer, implementation: str, x: Tensor
) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """Return one implementation of these experts, and their weights in the order of ours."""
    router, experts = _hf_parts(layer, implementation)
    return partial(_hf_forward, router, experts, x), [experts.gate_up_proj, experts.down_proj]


def _hf_parts(layer: MoELayer, implementation: str) -> tuple[nn.Module, nn.Module]:
    transformers = importlib.import_module("transformers")
    mixtral = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
    config = transformers.MixtralConfig(
        hidden_size=layer.hidden_size,
        intermediate_size=layer.expert_hidden_size,
        num_local_experts=layer.config.num_experts,
        num_experts_per_tok=layer.config.top_k,
        hidden_act="silu",
    )
    config._experts_implementation = implementation  # noqa: SLF001  no public name sets it
    router, experts = mixtral.MixtralTopKRouter(config), mixtral.MixtralExperts(config)
    router.weight = copy.deepcopy(layer.router.gate.weight)
    experts.gate_up_proj = copy.deepcopy(layer.experts.up)
    experts.down_proj = copy.deepcopy(layer.experts.down)
    return router.float(), experts.eval()


def _hf_forward(router: nn.Module, experts: nn.Module, x: Tensor) -> Tensor:
    _, weights, indices = router(x.float())
    return experts(x, indices, weights).to(x.dtype)


def make_layer(shape: Shape, device: torch.device, kind: type[MoELayer] = MoELayer) -> MoELayer:
    """Create a layer in evaluation mode, with relu and biases or as Mixtral, with fixed weights."""
    torch.manual_seed(0)
    mixtral = {"activation": "silu", "use_bias": False} if kind is SwiGLUMoE else {}
    config = MoEConfig(num_experts=shape.experts, top_k=shape.top_k, **mixtral)
    layer = kind(config, shape.hidden, shape.expert_hidden)
    return layer.to(device, shape.torch_dtype).eval()


def make_tokens(shape: Shape, device: torch.device) -> Tensor:
    """Return fixed normal numbers [T, d]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape.tokens, shape.hidden, generator=generator).to(
        device, shape.torch_dtype
    )


def own_benchmarks(shape: Shape, device: torch.device) -> list[Benchmark]:
    """Compare the layer with `mask_loop` and `dense_all_experts`."""
    layer, x = make_layer(shape, device), make_tokens(shape, device)
    opponents = {"mask_loop": (mask_loop, 0.9), "dense_all_experts": (dense_all_experts, 2.8)}
    kind = "threshold" if device.type == "cpu" else "goal"  # these are known of a CPU only
    return [
        layer_benchmark(layer, x, shape, Arm(name, partial(work, layer, x)), **{kind: bound})
        for name, (work, bound) in opponents.items()
    ]


def hf_benchmarks(
    shape: Shape,
    device: torch.device,
    *,
    thresholds: Mapping[str, float] | None = None,
    goals: Mapping[str, float | None] | None = None,
    graph: bool = False,
) -> list[Benchmark]:
    """Compare the layer with transformers' experts; thresholds and goals by implementation.

    Up to 64 tokens, and with `graph`, the layer is captured if possible.

    Raises:
        ImportError: see `why_no_hf`.
    """
    layer, x = make_layer(shape, device, SwiGLUMoE), make_tokens(shape, device)
    subject = None
    if replay := captured(layer, x) if graph or shape.tokens <= FEW_ROWS else None:
        subject = Arm("layer as a graph", replay)
    thresholds, goals = thresholds or {}, goals or {}
    return [
        layer_benchmark(
            layer,
            x,
            shape,
            Arm(f"hf_{name}", work),
            subject=subject,
            threshold=thresholds.get(name),
            goal=goals.get(name),
        )
        for name, work in hf_arms(layer, x).items()
    ]


def recorded(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Capture `work` as a CUDA graph; a call replays it and copies the outputs.

    Raises:
        RuntimeError: it cannot be captured; the message has the reason.
    """
    if reason := why_no_graphs(device):
        raise RuntimeError(reason)
    graphs = CudaGraphs(device)
    with graphs.aside():
        for _ in range(WARM_UPS):
            work()
    replay, outputs = graphs.record(work)

    def again() -> Any:
        replay()
        return tree_map_only(Tensor, torch.clone, outputs)

    return again


def captured(layer: MoELayer, x: Tensor) -> Callable[[], Tensor] | None:
    """Capture the layer's output for x as a CUDA graph; None, with a message, if impossible."""
    path = path_for(layer.experts, x, layer.config)
    try:
        if path.synchronises:
            raise RuntimeError(f"by {path} the host waits for the device")
        return recorded(torch.no_grad()(partial(layer, x)), x.device)
    except RuntimeError as refused:
        if x.device.type != "cpu":
            evidence.degraded(f"moe/{layer.hidden_size}: {refused}")
        print(f"  no graph: {refused}", flush=True)
        return None


def layer_benchmark(
    layer: MoELayer, x: Tensor, shape: Shape, baseline: Arm, *, subject: Arm | None = None, **marks
) -> Benchmark:
    """Compare the layer, or `subject`, with `baseline`; all assignments must be computed."""
    name = benchmark_name(shape, baseline.name)
    wanted = shape.tokens * shape.top_k
    close = close_to(TOLERANCES[shape.torch_dtype])

    def equal(ours: object, theirs: object) -> Equality:
        computed = int(layer.computed.sum())
        done = evidence.check(
            f"{name}/all_computed",
            computed == wanted,
            value=computed,
            unit="assignments",
            tolerance=0,
        )
        return close(ours, theirs) if done else Equality(False, wanted - computed, 0, "assignments")

    path = path_for(layer.experts, x, layer.config)
    products = 3 if layer.gated else 2
    flops = 2.0 * products * wanted * shape.hidden * shape.expert_hidden
    reads = sum(p.nbytes for p in layer.parameters()) if shape.tokens <= FEW_ROWS else 0
    number = {"float32": "fp32", "bfloat16": "bf16"}[shape.dtype]
    sizes = asdict(shape) | {"tokens": shape.tokens, "path": path.name}
    return Benchmark(
        name=name,
        subject=subject or Arm("layer", partial(layer, x)),
        baseline=baseline,
        equal=equal,
        device=x.device,
        params=sizes | {"threads": torch.get_num_threads()},
        work=Work(flops, reads, number),  # few rows wait for the weights
        inputs=lambda _: layer.reset_expert_utilization(),
        rounds=1,
        **marks,
    )


def benchmark_name(shape: Shape, baseline: str) -> str:
    """Return the benchmark's name: `moe/512` for the mask loop, with further words for others."""
    words = ["moe", str(shape.hidden)]
    words += ["decode"] * (shape.tokens <= FEW_ROWS) + ["bf16"] * (shape.dtype == "bfloat16")
    return "/".join([*words, *([baseline] if baseline != "mask_loop" else [])])

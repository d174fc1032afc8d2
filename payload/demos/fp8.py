"""Eight demonstrations of float8. Run: `python -m demos.fp8`; exits 1 if one fails.

Every demonstration also checks what it shows.
"""

from __future__ import annotations

import copy
import sys

import torch
import torch.nn.functional as F

from benchmarks.fp8 import SIZES, Layers, benchmark_of, storage
from demos.fp8_transformer import Block
from demos.stage import Part, require, show_all
from torchbridge import evidence, fp8
from torchbridge.bench import run_benchmark
from torchbridge.fp8 import FP8Dtype, FP8InferenceEngine, FP8QuantizedTensor, NativeFP8Linear
from torchbridge.fp8.checks import ROUND_TRIP_LIMIT as ROUND_TRIP
from torchbridge.numbers import relative_rms as error
from torchbridge.timing import Spread

MIB = 2**20


def report_fallback(fallback: str | None) -> None:
    """Report degraded if float8 units were not used."""
    if fallback:
        evidence.degraded(fallback)
        print(f"  Fell back: {fallback}")


def availability(device: torch.device) -> None:
    """Show what this device does with float8."""
    info = fp8.get_fp8_info(device)
    print(f"PyTorch: {info['torch']} on {info['device']}")
    print(f"Native float8 types: {', '.join(n for n in dir(torch) if n.startswith('float8'))}")
    print(f"scaled_mm: {info['scaled_mm'] or info['why_not']}")
    print(f"FP8 units in hardware: {'yes' if info['hardware_accelerated'] else 'no'}")
    for name, facts in info["formats"].items():
        print(f"  {name}: {facts['dtype']}, max {facts['max']:g}, for {facts['use']}")
    report_fallback(info["why_not"])
    print("\nTried here, relative RMS errors:")
    checks = fp8.validate_fp8_setup(device)["checks"]
    for name, check in checks.items():
        print(f"  {name:<20} {check['error']:.2%} (at most {check['limit']:.1%})")
    require(all(check["passed"] for check in checks.values()), "every error within its limit")


def quantization(device: torch.device) -> None:
    """Show quantisation and dequantisation in both formats."""
    x = torch.randn(4, 256, device=device)
    print(f"Input: {tuple(x.shape)}, normal numbers")
    squares = {}
    for fmt, limit in ROUND_TRIP.items():
        quantised = FP8QuantizedTensor.from_tensor(x, fmt)
        back = quantised.dequantize()
        squares[fmt] = (back - x).square().mean().item()
        print(f"\n{fmt.name}: {quantised.data.dtype}, max {fmt.max:g}")
        print(f"  Scale: {quantised.scale.item():.4f} (q = x * scale)")
        print(f"  MSE: {squares[fmt]:.6f}")
        print(f"  Relative error: {error(back, x):.2%}")
        require(error(back, x) <= limit, f"an error of at most {limit:.0%}")
    ratio = squares[FP8Dtype.E5M2] / squares[FP8Dtype.E4M3]
    print(f"\nE5M2 has {ratio:.1f}x the MSE of E4M3 (a bit of mantissa less: 4x)")
    require(3 <= ratio <= 5, "about four times the squared error")


def native_linear(device: torch.device) -> None:
    """Show forward and backward of one layer."""
    layer = NativeFP8Linear(512, 256, path="auto", device=device)
    x = torch.randn(4, 512, device=device, requires_grad=True)
    out = layer(x)
    gradient = torch.randn_like(out)
    out.backward(gradient)
    off = error(out - layer.bias, x @ layer.weight.T)
    off_gradient = error(layer.weight.grad, gradient.T @ x)
    print(f"Layer: {layer}")
    print(f"Input: {tuple(x.shape)}, output: {tuple(out.shape)}")
    print(f"Weight: a Parameter of {layer.weight.dtype}, trained; quantised for every step")
    print(f"Gradient of the input: {tuple(x.grad.shape)}")
    print(f"Gradient of the weight: {tuple(layer.weight.grad.shape)}")
    print("\nHow the three products were computed:")
    for name, path in layer.paths.items():
        print(f"  {name:<12} {path.name}")
    print(f"Errors: output {off:.2%}, weight gradient {off_gradient:.2%}")
    report_fallback(layer.fallback)
    require(off <= 0.045 and off_gradient <= 0.09, "at most 4.5 % and 9 %")


@torch.no_grad()
def inference_engine(device: torch.device) -> None:
    """Show a block whose weights are stored in float8 only."""
    block = Block(256, 4, 512).to(device).eval()
    x = torch.randn(2, 32, 256, device=device)
    expected = block(x)
    engine = FP8InferenceEngine(block, path="auto")
    engine.prepare()
    out = engine.infer(x)
    found, layers = engine.get_memory_savings(), engine.get_layer_info()
    before, after = found["original_weight_bytes"], found["fp8_weight_bytes"]
    print(f"Transformer block: d=256, 4 heads, ff 512: {len(layers)} Linear layers")
    for name, layer in layers.items():
        widths = f"{layer['in_features']} -> {layer['out_features']}"
        print(f"  {name:<6} {widths:<11} {layer['weight_bytes']:>7,} bytes, {layer['path_taken']}")
    print("\nBytes of storage, measured:")
    print(f"  Linear weights: {before / MIB:.2f} MiB -> {after / MIB:.2f} MiB")
    print(f"  Scales: {found['scale_bytes']} bytes")
    whole = found["original_bytes"] / MIB, found["fp8_bytes"] / MIB
    print(f"  Whole model: {whole[0]:.2f} MiB -> {whole[1]:.2f} MiB")
    print(f"  Saved: {found['saved_fraction']:.1%} (of the weights {1 - after / before:.0%})")
    print(f"\nOutput: {tuple(out.shape)}, {error(out, expected):.2%} from float32's")
    report_fallback(next(iter(layers.values()))["fallback"])
    require(len(layers) == 6 and after * 4 == before, "six layers of a quarter of the bytes")
    require(error(out, expected) <= 0.05, "an output within 5 %")


def model_conversion(device: torch.device) -> None:
    """Show the conversion of a model in place and as a copy."""
    block = Block(256, 4, 512).to(device)
    converted = fp8.convert_model_to_native_fp8(block, path="auto")
    count = sum(isinstance(one, NativeFP8Linear) for one in converted.modules())
    x = torch.randn(2, 32, 256, device=device)
    print(f"Converted {count} Linear layers; norms and attention stay as they are")
    for one in (block, converted):
        one(x).square().mean().backward()
    out = error(converted(x), block(x))
    gradient = error(converted.up.weight.grad, block.up.weight.grad)
    print(f"Output: {out:.2%} from float32's; gradient of `up`: {gradient:.2%}")
    print(f"Parameters: {sum(one.numel() for one in converted.parameters()):,}, all of them train")
    require(count == 6 and out <= 0.05 and gradient <= 0.15, "6 layers, within 5 % and 15 %")
    before = list(map(id, block.parameters()))
    same = fp8.convert_model_to_native_fp8(block, inplace=True) is block
    require(same and before == list(map(id, block.parameters())), "the same parameters in place")
    print("In place: the same Parameters, so an optimiser stays valid")


def training(device: torch.device) -> None:
    """Compare ten steps of AdamW with float32."""
    model = Block(128, 4, 512).to(device)
    plain = copy.deepcopy(model)
    before = copy.deepcopy(model)
    x = torch.randn(4, 32, 128, device=device)
    target = x.roll(1, dims=1)  # what a causal block can learn: the token before
    engine = fp8.create_fp8_trainer(model, path="auto")
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-4) for one in (model, plain)]
    print("Block d=128, 4 heads, ff 512; batch 4 x 32; AdamW 1e-4")
    losses = []
    for step in range(1, 11):
        losses.append(engine.training_step(x, target).item())
        engine.optimizer_step(optimizers[0])
        wanted = F.mse_loss(plain(x), target)
        wanted.backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        if step % 5 == 0:
            print(f"  Step {step}: loss {losses[-1]:.4f} (float32: {wanted.item():.4f})")
    report_fallback(model.up.fallback)
    found = engine.statistics()
    print(f"Steps: {found['steps']}, left out: {found['overflows']}; float32 needs no loss scale")
    moved = error(model.up.weight, before.up.weight)
    print(f"The weights of `up` moved by {moved:.2%}")
    require(losses[-1] < losses[0] and found["overflows"] == 0, "the loss to fall")
    require(abs(losses[-1] / wanted.item() - 1) <= 0.02, "a loss within 2 % of float32's")
    require(moved > 1e-3, "weights that move, not only biases")


def benchmark(device: torch.device) -> None:
    """Time a float8 layer, including quantisation, against a bfloat16 one."""
    print("In/out/batch: at most 100 runs each, in turns, medians")
    for size in SIZES:
        layers = Layers.create(size, torch.bfloat16, "tensor", device)
        with torch.inference_mode():
            outcome = run_benchmark(
                benchmark_of(layers, size, device, "bf16", False),
                pairs=100,
                budget_s=2.0,
                quiet=True,
            )
        require(outcome.equality.equal, "bfloat16's numbers within float8's rounding")
        ours, theirs = (
            Spread.from_samples(outcome.seconds(arm)).median for arm in ("subject", "baseline")
        )
        print(f"\n{'/'.join(map(str, size))}: {len(outcome.seconds('subject'))} pairs")
        print(f"  FP8:  {1e3 * ours:.3f} ms by {layers.float8.path_taken}")
        print(f"  BF16: {1e3 * theirs:.3f} ms")
        print(f"  Speedup: {outcome.ratio()}")
        print(f"  Output {outcome.equality.error:.2%} from bfloat16's; half of the bytes")
        report_fallback(layers.float8.fallback)
        require(storage(layers.float8, layers.plain)[0] == 0.5, "half of bfloat16's bytes")
    if not fp8.get_fp8_info(device)["hardware_accelerated"]:
        print("\nThis device has no FP8 units: all that float8 can save here is memory.")


def numerical_stability(device: torch.device) -> None:
    """Show that the scale follows the magnitude of the numbers."""
    numbers = torch.randn(100, 256, device=device)
    for size in (1, 10, 0.01, 100):
        x = numbers * size
        back = {fmt: FP8QuantizedTensor.from_tensor(x, fmt).dequantize() for fmt in FP8Dtype}
        squares = {fmt: (one - x).square().mean().item() for fmt, one in back.items()}
        best = min(squares, key=squares.get)
        print(f"\nrandn(100, 256) x {size}:")
        for fmt, one in back.items():
            print(f"  {fmt.name}: MSE {squares[fmt]:.3e}, relative {error(one, x):.2%}")
            require(error(one, x) <= ROUND_TRIP[fmt], f"at most {ROUND_TRIP[fmt]:.0%}")
        print(f"  Recommended: {best.name}")
        require(best is FP8Dtype.E4M3, "E4M3 for numbers of one size")


DEMOS: tuple[Part, ...] = (
    ("FP8 Availability", availability),
    ("Quantization", quantization),
    ("Native FP8 Linear", native_linear),
    ("FP8 Inference Engine", inference_engine),
    ("Model Conversion", model_conversion),
    ("FP8 Training", training),
    ("Benchmark", benchmark),
    ("Numerical Stability", numerical_stability),
)


if __name__ == "__main__":
    sys.exit(show_all("Native FP8 Demonstrations", DEMOS))

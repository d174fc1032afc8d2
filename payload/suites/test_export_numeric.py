"""Each export format on models that exporters get wrong, against the model in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

from suites.export_models import (
    Branching,
    Careless,
    Encoder,
    Frozen,
    Stateful,
    Tied,
    TwoInputs,
    mlp,
)
from suites.numerics import TOLERANCE, assert_close, needs_module, relative_error
from torchbridge import export
from torchbridge.export import ExportMismatch, ExportUnavailable
from torchbridge.kernels import FusedFFNLayer

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
SUFFIX = {"torch_export": ".pt2", "onnx": ".onnx", "torchscript": ".pt", "safetensors": ".st"}
ONNX = needs_module("onnx", "onnxscript", "onnxruntime")
SAFETENSORS = needs_module("safetensors")
FORMATS = [
    "torch_export",
    pytest.param("onnx", marks=ONNX),
    "torchscript",
    pytest.param("safetensors", marks=SAFETENSORS),
]
QUICK = [FORMATS[0], *FORMATS[2:]]


def write(file_format: str, folder, model: nn.Module, x, **settings) -> export.ExportResult:
    """Export the model to a file in `folder`."""
    path = folder / f"m{SUFFIX[file_format]}"
    return export.EXPORTERS[file_format](model, path, x, **settings)


def load(file_format: str, folder, fresh: nn.Module) -> export.LoadedFile:
    """Load the file that `write` wrote; a format without code loads its weights into `fresh`."""
    path = folder / f"m{SUFFIX[file_format]}"
    if file_format == "safetensors":
        return export.load_safetensors(path, fresh.eval())
    return getattr(export, f"load_{file_format}")(path)


@torch.no_grad()
def assert_same(loaded: export.LoadedFile, model: nn.Module, *inputs: torch.Tensor) -> None:
    """Check that the file's outputs equal the model's in float64 on the CPU."""
    wide = copy.deepcopy(model).cpu().double().eval()
    cpu = [x.cpu().double() if x.is_floating_point() else x.cpu() for x in inputs]
    expected, actual = wide(*cpu), loaded(*inputs)
    values = expected.values() if isinstance(expected, dict) else [expected]
    told = actual.values() if isinstance(actual, dict) else actual
    told = [told] if isinstance(told, torch.Tensor) else list(told)
    for one, wanted in zip(told, values, strict=True):
        assert_close(one, wanted)


@pytest.mark.parametrize("file_format", FORMATS)
class TestFormats:
    def test_transformer_from_a_single_sequence(self, file_format, device, tmp_path):
        model = Encoder().to(device)
        names = ({0: Dim("batch"), 1: Dim("sequence", max=32)},)
        ids = torch.randint(0, 50, (1, 8), device=device)
        result = write(file_format, tmp_path, model, ids, dynamic=names)
        assert (result.inputs_verified, result.shapes_verified) == (9, 3)
        loaded = load(file_format, tmp_path, Encoder().to(device))
        for shape in ((1, 1), (1, 32), (5, 3), (2, 17)):
            assert_same(loaded, model, torch.randint(0, 50, shape, device=device))
        assert loaded.metadata.inputs == ("int64[batch, sequence]",)

    def test_several_inputs_and_a_dictionary(self, file_format, device, tmp_path):
        model = TwoInputs().to(device)

        def inputs(n):
            floats = [torch.randn(n, 6, device=device) for _ in range(2)]
            return *floats, torch.rand(n, device=device) > 0.5

        write(file_format, tmp_path, model, inputs(4))
        loaded = load(file_format, tmp_path, TwoInputs().to(device))
        for n in (1, 4, 7):
            assert_same(loaded, model, *inputs(n))

    def test_model_and_sample_stay_as_they_were(self, file_format, device, tmp_path):
        model = nn.Sequential(nn.Dropout(0.9), mlp(), Careless()).to(device).train()
        model[1].eval()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        x = torch.randn(3, 12, device=device)
        kept = x.clone()
        write(file_format, tmp_path, model, x)
        assert torch.equal(x, kept)
        assert [module.training for module in model] == [True, False, True]
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.parametrize("file_format", QUICK)
class TestQuickFormats:
    """Checks that the faster formats share with ONNX; test_deployment.py covers ONNX."""

    def test_metadata_is_stored(self, file_format, device, tmp_path):
        model = FusedFFNLayer(8, 16).to(device)
        x = torch.randn(1, 8, device=device)
        result = write(file_format, tmp_path, model, x, dynamic=())
        assert (result.inputs_verified, result.shapes_verified) == (3, 1)
        stored = load(file_format, tmp_path, FusedFFNLayer(8, 16).to(device)).metadata
        assert (stored.format, stored.model, stored.parameters) == (
            file_format,
            "FusedFFNLayer",
            280,
        )
        assert (stored.bytes, stored.dtypes) == (4 * 280, ("float32",))
        assert stored.inputs == ("float32[1, 8]",)
        assert [one.modules for one in stored.fusions] == [("up",)]
        own = export.OptimizationMetadata(model="mine", level="aggressive")
        write(file_format, tmp_path, model, x, metadata=own)
        assert load(file_format, tmp_path, FusedFFNLayer(8, 16).to(device)).metadata == own


@pytest.mark.parametrize(
    ("file_format", "dtype"),
    [
        ("torch_export", torch.float64),
        ("torch_export", torch.bfloat16),
        ("torchscript", torch.float16),
        ("safetensors", torch.bfloat16),
    ],
)
def test_dtypes(file_format, dtype, device, tmp_path):
    if file_format == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors not installed")
    model = mlp(dtype).to(device)
    write(file_format, tmp_path, model, torch.randn(2, 12).to(device, dtype))
    loaded = load(file_format, tmp_path, mlp(dtype).to(device))
    x = torch.randn(5, 12).to(device, dtype)
    told = loaded(x)
    assert told.dtype == dtype
    assert relative_error(told, model(x)) <= TOLERANCE[dtype]
    assert loaded.metadata.dtypes == (str(dtype).removeprefix("torch."),)


class TestTraps:
    def test_python_number_of_the_batch(self, device, tmp_path):
        x = torch.randn(3, 5, device=device)
        with pytest.raises(Exception, match=r"batch .*to be a constant \(3\)"):
            write("torch_export", tmp_path, Frozen(), x)
        with pytest.raises(ExportMismatch, match="export_to_torch_export"), pytest.warns():
            write("torchscript", tmp_path, Frozen(), x)
        assert list(tmp_path.iterdir()) == []

    @ONNX
    def test_onnx_of_a_fixed_batch(self, device, tmp_path):
        with pytest.raises(ExportMismatch, match=r"on 6 of 9 inputs.*Declare every axis"):
            write("onnx", tmp_path, Frozen(), torch.randn(3, 5, device=device))

    def test_branch_of_the_example(self, device, tmp_path):
        x = torch.rand(3, 5, device=device)
        checks = [(x,), (2 * x,), (x[:1],)]
        with pytest.warns(torch.jit.TracerWarning):
            write("torchscript", tmp_path, Branching(), x, checks=checks)  # one branch only
        with pytest.raises(ExportMismatch, match="on 1 of 4 inputs"), pytest.warns():
            write("torchscript", tmp_path, Branching(), x, checks=[*checks, (-x,)])


@ONNX
class TestOnnx:
    def test_bfloat16_is_refused(self, tmp_path):
        with pytest.raises(ExportUnavailable, match=r"no bfloat16.*cast the model to float32"):
            write("onnx", tmp_path, mlp(torch.bfloat16), torch.randn(2, 12).bfloat16())

    def test_more_than_one_file_holds_is_refused(self, tmp_path):
        huge = nn.Linear(2**15, 2**15, device="meta")
        with pytest.raises(ExportUnavailable, match=r"4\.0 GiB .*use export_to_torch_export"):
            write("onnx", tmp_path, huge, torch.randn(2, 2**15))

    def test_file_tells_nothing_of_this_machine(self, tmp_path):
        import onnx

        result = write("onnx", tmp_path, mlp(), torch.randn(2, 12))
        assert __file__.rpartition("/")[0].encode() not in result.path.read_bytes()
        graph = onnx.load(result.path).graph
        assert [one.dim_param for one in graph.input[0].type.tensor_type.shape.dim] == ["batch", ""]


@SAFETENSORS
class TestSafeTensors:
    def test_shared_tensors_are_stored_once(self, device, tmp_path):
        model = Tied().to(device)
        model.first = model.table[:2]
        ids = torch.randint(0, 20, (2, 5), device=device)
        result = write("safetensors", tmp_path, model, ids)
        names = set(stored(result))
        assert len(names & {"tokens.weight", "head.weight"}) == 1
        assert result.size_bytes < 4 * (20 * 8 + 4 * 8 + 2 * 8 + 8 * 3) + 2000
        fresh = Tied().to(device)
        assert_same(load("safetensors", tmp_path, fresh), model, ids)
        assert fresh.head.weight is fresh.tokens.weight

    def test_bits_and_dtypes(self, tmp_path):
        model = nn.Module()
        kinds = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool)
        for dtype in kinds:
            name = str(dtype).replace("torch.", "as_")
            model.register_buffer(name, torch.randint(0, 2, (3, 2)).to(dtype))
        model.register_buffer("odd", torch.tensor([float("nan"), -0.0, float("inf"), 1e-45]))
        for name in ("none", "none_either"):  # same address, but separate tensors
            model.register_buffer(name, torch.empty(0, 4))
        model.register_buffer("square", torch.randn(3, 3))
        model.register_buffer("turned", model.square.t())  # same memory and shape as square
        model.register_buffer("strided", torch.randn(4, 6).t()[::2])
        model.forward = lambda x: x + model.strided.sum()
        result = write("safetensors", tmp_path, model, torch.randn(2, 3))
        found = stored(result)
        assert found.keys() == model.state_dict().keys()
        for name, value in model.state_dict().items():
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            bits = [t.contiguous().flatten().view(torch.uint8) for t in (found[name], value)]
            assert torch.equal(*bits)

    def test_other_model_is_refused_and_left_alone(self, tmp_path):
        write("safetensors", tmp_path, mlp(), torch.randn(2, 12))
        others = {
            "0.weight torch.float32": mlp(torch.float16),
            "2.weight": nn.Sequential(nn.Linear(12, 24)),
            r"0.bias torch.float32\[24\]": nn.Sequential(
                nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 5)
            ),
        }
        for text, other in others.items():
            before = copy.deepcopy(other.state_dict())
            with pytest.raises(ValueError, match=f"does not fit the model: .*{text}"):
                export.load_safetensors(tmp_path / "m.st", other)
            assert all(torch.equal(before[name], t) for name, t in other.state_dict().items())

    def test_more_than_tensors_is_refused(self, tmp_path):
        with pytest.raises(ExportUnavailable, match="'_extra_state' in the state_dict is a dict"):
            write("safetensors", tmp_path, Stateful(4, 4), torch.randn(2, 4))

    def test_hook_that_changes_weights_is_caught(self, tmp_path):
        model = nn.Linear(4, 4)

        def doubled(module, state, prefix, metadata):
            state["weight"] = state["weight"] * 2

        model.register_state_dict_post_hook(doubled)
        with pytest.raises(ExportMismatch, match="weight came back with other bits"):
            write("safetensors", tmp_path, model, torch.randn(2, 4))


def stored(result: export.ExportResult) -> dict[str, torch.Tensor]:
    """Return the tensors in the file, read by the safetensors library itself."""
    from safetensors.torch import load_file

    return load_file(result.path)


class TestTorchScript:
    def test_script_keeps_both_branches(self, device, tmp_path):
        x = torch.rand(3, 5, device=device)
        checks = [(x,), (-x,), (x[:1],), (-x[:1],)]
        result = write("torchscript", tmp_path, Branching(), x, method="script", checks=checks)
        assert result.max_difference == 0.0

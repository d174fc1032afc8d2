"""The 24 named tests of export: metadata, TorchScript, ONNX and both together."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.export import Dim

from suites.export_models import Branching, ConvNet, Frozen, mlp
from suites.numerics import assert_close, needs_module
from torchbridge import __version__, export
from torchbridge.device import pick_device
from torchbridge.export import FusionMetadata, HardwareMetadata, OptimizationMetadata
from torchbridge.hardware import Hardware
from torchbridge.kernels import FusedFFNLayer
from torchbridge.passes import PassResult, Prepared

ONNX = ("onnx", "onnxscript", "onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
FULL = OptimizationMetadata(
    model="Net",
    format="onnx",
    parameters=437,
    bytes=1748,
    dtypes=("float32", "int64"),
    inputs=("float32[batch, 12]",),
    level="balanced",
    passes={"fold_conv_bn": "1 of 1 folded"},
    fusions=(FusionMetadata("linear_gelu", ("linear", "gelu"), ("up",)),),
    hardware=HardwareMetadata.from_hardware(
        Hardware.nvidia((8, 9), name="L4", memory_bytes=24 * 2**30)
    ),
)


@pytest.fixture
def x(device) -> torch.Tensor:
    """Return normally distributed numbers [4, 12]."""
    return torch.randn(4, 12, device=device)


@pytest.fixture
def model(device) -> nn.Module:
    """Return a perceptron [B, 12] -> [B, 5] with 24 hidden features."""
    return mlp().to(device)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return (model, ONNX result, TorchScript result), exported once for the module."""
    device, folder = pick_device(), tmp_path_factory.mktemp("exported")
    torch.manual_seed(5)
    model, x = mlp().to(device), torch.randn(4, 12, device=device)
    onnx = export.export_to_onnx(model, folder / "m.onnx", x)
    script = export.export_to_torchscript(model, folder / "m.pt", x)
    return model, onnx, script


def by_hand(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """Return the perceptron's output by its formula in float64 on the CPU."""
    up, _, down = model
    weights = [p.detach().cpu().double() for p in (up.weight, up.bias, down.weight, down.bias)]
    hidden = x.cpu().double() @ weights[0].T + weights[1]
    hidden = 0.5 * hidden * (1 + torch.erf(hidden * 0.5**0.5))
    return hidden @ weights[2].T + weights[3]


class TestOptimizationMetadata:
    def test_create_default_metadata(self):
        metadata = OptimizationMetadata()
        assert (metadata.model, metadata.parameters, metadata.bytes) == ("", 0, 0)
        assert (metadata.passes, metadata.fusions, metadata.level) == ({}, (), "")
        assert (metadata.torch, metadata.torchbridge) == (str(torch.__version__), __version__)

    def test_metadata_to_dict(self):
        facts = FULL.to_dict()
        assert facts["schema"] == 1
        assert facts["parameters"] == 437
        assert facts["fusions"] == [
            {"name": "linear_gelu", "operations": ["linear", "gelu"], "modules": ["up"]}
        ]
        assert facts["hardware"]["target"] == "sm_89"
        assert json.loads(json.dumps(facts)) == facts  # all values survive JSON

    def test_metadata_from_dict(self):
        assert OptimizationMetadata.from_dict(FULL.to_dict()) == FULL
        assert OptimizationMetadata.from_dict({"schema": 1}) == OptimizationMetadata()
        with pytest.raises(ValueError, match="knows no speedup"):
            OptimizationMetadata.from_dict({"schema": 1, "speedup": 2.0})
        with pytest.raises(ValueError, match="schema 2; this library reads schema 1"):
            OptimizationMetadata.from_dict({"schema": 2})

    def test_metadata_save_load(self, tmp_path):
        FULL.save(tmp_path / "metadata.json")
        assert OptimizationMetadata.load(tmp_path / "metadata.json") == FULL
        assert OptimizationMetadata.from_json(FULL.to_json()) == FULL
        assert "\n" not in FULL.to_json()
        assert json.loads((tmp_path / "metadata.json").read_text())["level"] == "balanced"

    def test_metadata_summary(self):
        assert FULL.summary().splitlines() == [
            "Net as onnx",
            "  437 parameters, 0.00 MB, float32, int64",
            "  inputs: float32[batch, 12]",
            "  passes: fold_conv_bn; fusions: linear_gelu (1)",
            f"  made on nvidia ada by torch {torch.__version__}, torchbridge {__version__}",
        ]

    def test_create_metadata_from_model(self, device):
        model = nn.Sequential(FusedFFNLayer(8, 16), nn.BatchNorm1d(8)).to(device)
        passes = (
            PassResult("cast", True, "5 of 5 in bf16"),
            PassResult("fold", False, reason="no conv"),
        )
        metadata = export.create_metadata_from_model(
            model,
            (torch.zeros(3, 8),),
            dynamic=({0: Dim("batch")},),
            prepared=Prepared(model, "balanced", passes),
            hardware=Hardware.nvidia((9, 0)),
        )
        assert metadata.parameters == 8 * 16 + 16 + 16 * 8 + 8 + 2 * 8 == 296
        assert metadata.bytes == 4 * (296 + 2 * 8) + 8  # two statistics and a step counter
        assert metadata.dtypes == ("float32", "int64")
        assert metadata.inputs == ("float32[batch, 8]",)
        assert (metadata.level, metadata.passes) == ("balanced", {"cast": "5 of 5 in bf16"})
        assert metadata.fusions == (FusionMetadata("linear_gelu", ("linear", "gelu"), ("0.up",)),)
        assert metadata.hardware.target == "sm_90"


class TestHardwareMetadata:
    def test_hardware_metadata_defaults(self):
        hardware = HardwareMetadata()
        assert (hardware.vendor, hardware.memory_bytes, hardware.features) == ("cpu", 0, ())

    def test_hardware_metadata_to_dict(self):
        hardware = HardwareMetadata.from_hardware(Hardware.amd("gfx942:sramecc+", units=304))
        facts = hardware.to_dict()
        assert [facts[name] for name in ("vendor", "target", "units")] == ["amd", "gfx942", 304]
        assert facts["features"] == ["bf16", "fp16", "fp8", "matrix_cores"]
        assert HardwareMetadata.from_dict(facts) == hardware
        with pytest.raises(ValueError, match="knows no clock"):
            HardwareMetadata.from_dict({"clock": 1})


class TestFusionMetadata:
    def test_add_fusion(self):
        fusion = FusionMetadata("conv_bn", ("conv", "batch_norm"), ("stem", "body.0"))
        more = FULL.add_fusion(fusion)
        assert [one.name for one in more.fusions] == ["linear_gelu", "conv_bn"]
        assert len(FULL.fusions) == 1  # the original is unchanged
        assert OptimizationMetadata.from_json(more.to_json()).fusions[1] == fusion
        with pytest.raises(ValueError, match="'conv_bn' is already recorded"):
            more.add_fusion(fusion)


class TestTorchScriptExporter:
    def test_export_trace_simple_model(self, model, x, tmp_path):
        result = export.export_to_torchscript(model, tmp_path / "m.pt", x)
        loaded = torch.jit.load(tmp_path / "m.pt")
        for batch in (1, 4, 9):
            other = torch.randn(batch, 12, device=x.device)
            assert_close(loaded(other), by_hand(model, other))
        assert result.size_bytes == (tmp_path / "m.pt").stat().st_size > 4 * 437

    def test_export_script_simple_model(self, x, tmp_path):
        model = Branching()
        export.export_to_torchscript(model, tmp_path / "m.pt", x, method="script")
        loaded = torch.jit.load(tmp_path / "m.pt")
        for one in (x.abs(), -x.abs()):  # both branches
            assert torch.equal(loaded(one), model(one))
        with pytest.raises(ValueError, match=r"trace.*script.*'guess'"):
            export.export_to_torchscript(model, tmp_path / "m.pt", x, method="guess")

    def test_export_with_validation(self, model, x, tmp_path):
        result = export.export_to_torchscript(model, tmp_path / "m.pt", x)
        assert (result.inputs_verified, result.shapes_verified) == (9, 3)
        assert {one.shapes[0][0] for one in result.verified} == {4, 1, 5}
        assert result.max_difference <= 1e-6
        wrong = pytest.raises(export.ExportMismatch, match="on 6 of 9 inputs")  # batches 1 and 5
        with wrong, pytest.warns(torch.jit.TracerWarning):
            export.export_to_torchscript(Frozen(), tmp_path / "wrong.pt", x)
        assert [path.name for path in tmp_path.iterdir()] == ["m.pt"]

    def test_export_with_metadata(self, model, x, tmp_path):
        export.export_to_torchscript(model, tmp_path / "m.pt", x, metadata=FULL)
        extra = {"torchbridge": ""}
        torch.jit.load(tmp_path / "m.pt", _extra_files=extra)
        assert OptimizationMetadata.from_json(extra["torchbridge"]) == FULL

    def test_load_torchscript_model(self, model, x, tmp_path):
        export.export_to_torchscript(model, tmp_path / "m.pt", x)
        loaded = export.load_torchscript(tmp_path / "m.pt")
        assert loaded.format == "torchscript"
        assert_close(loaded(x), by_hand(model, x))
        assert (loaded.metadata.model, loaded.metadata.parameters) == ("Sequential", 437)
        assert loaded.metadata.inputs == ("float32[batch, 12]",)
        torch.jit.save(torch.jit.trace(model, x), str(tmp_path / "other.pt"))
        assert export.load_torchscript(tmp_path / "other.pt").metadata is None

    def test_export_frozen_model(self, model, x, tmp_path):
        export.export_to_torchscript(model, tmp_path / "m.pt", x, freeze=True)
        loaded = export.load_torchscript(tmp_path / "m.pt")
        assert list(loaded.run.parameters()) == []  # the parameters are constants
        assert_close(loaded(x), by_hand(model, x))

    def test_convenience_function(self, model, x, tmp_path):
        result = export.EXPORTERS["torchscript"](model, str(tmp_path / "m.pt"), (x,))
        assert (result.format, result.path) == ("torchscript", tmp_path / "m.pt")
        assert_close(export.load_torchscript(result.path)(x[:2]), by_hand(model, x[:2]))


@needs_module(*ONNX)
class TestONNXExporter:
    def test_export_simple_model(self, exported, x):
        import onnxruntime

        model, result, _ = exported
        session = onnxruntime.InferenceSession(str(result.path))
        name = session.get_inputs()[0].name
        told = torch.from_numpy(session.run(None, {name: x.cpu().numpy()})[0])
        assert_close(told, by_hand(model, x))
        assert result.size_bytes == result.path.stat().st_size > 4 * 437

    def test_export_with_dynamic_axes(self, device, tmp_path):
        model = ConvNet().to(device).eval()
        names = {0: Dim("batch"), 2: Dim("height"), 3: Dim("width")}
        x = torch.randn(1, 3, 8, 8, device=device)  # exporters may keep batch 1 as a constant
        result = export.export_to_onnx(model, tmp_path / "m.onnx", x, dynamic=(names,))
        assert result.shapes_verified == 3
        loaded = export.load_onnx(tmp_path / "m.onnx")
        for shape in ((1, 3, 8, 8), (3, 3, 8, 8), (2, 3, 5, 11), (7, 3, 16, 4)):
            other = torch.randn(shape, device=device)
            with torch.no_grad():
                assert_close(loaded(other), model.cpu()(other.cpu()), 1e-5)
        assert loaded.metadata.inputs == ("float32[batch, 3, height, width]",)

    def test_export_with_metadata(self, model, x, tmp_path):
        import onnx

        export.export_to_onnx(model, tmp_path / "m.onnx", x, metadata=FULL)
        stored = {one.key: one.value for one in onnx.load(tmp_path / "m.onnx").metadata_props}
        assert OptimizationMetadata.from_json(stored["torchbridge"]) == FULL
        assert export.load_onnx(tmp_path / "m.onnx").metadata == FULL

    def test_export_validation(self, exported, x):
        model, result, _ = exported
        assert (result.inputs_verified, result.shapes_verified) == (9, 3)
        assert 0 < result.max_difference <= 1e-5  # another engine computed it
        run, wanted = export.load_onnx(result.path), [[by_hand(model, x).float()]]
        with pytest.raises(export.ExportMismatch, match="is over 1e-12"):
            export.verify("onnx", run, [(x,)], wanted, tolerance=1e-12)

    def test_convenience_function(self, exported, x):
        model, result, _ = exported
        assert export.EXPORTERS["onnx"] is export.export_to_onnx
        assert (result.format, result.path.name) == ("onnx", "m.onnx")
        assert_close(export.load_onnx(result.path)(x[:1]), by_hand(model, x[:1]))


@needs_module(*ONNX)
class TestDeploymentIntegration:
    def test_export_both_formats(self, exported):
        _, onnx, script = exported
        assert [one.shapes for one in script.verified] == [one.shapes for one in onnx.verified]
        assert min(script.size_bytes, onnx.size_bytes) > 4 * 437

    def test_metadata_consistency(self, exported):
        _, onnx, script = exported
        loaded = export.load_torchscript(script.path), export.load_onnx(onnx.path)
        facts = [one.metadata.to_dict() for one in loaded]
        assert [one.pop("format") for one in facts] == ["torchscript", "onnx"]
        assert facts[0] == facts[1]

    def test_model_output_consistency(self, exported):
        model, onnx, script = exported
        loaded = export.load_torchscript(script.path), export.load_onnx(onnx.path)
        for rows in range(1, 6):
            x = torch.randn(rows, 12, device=model[0].weight.device)
            for one in loaded:
                assert_close(one(x), by_hand(model, x))

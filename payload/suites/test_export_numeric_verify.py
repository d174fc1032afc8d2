"""How exports are verified: which inputs are drawn, what counts as equal, which files remain."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

from suites.export_models import mlp
from torchbridge import export
from torchbridge.export import (
    ExportMismatch,
    ExportUnavailable,
    LoadedFile,
    OptimizationMetadata,
    Plan,
)
from torchbridge.export.publish import (
    TOLERANCE,
    answers,
    difference,
    leaves,
    publish,
    require,
    verify,
)
from torchbridge.passes import evaluating

STATIC = ()
MOVING = ({0: Dim("batch"), 1: Dim("sequence", max=9)},)
BOUNDED = ({0: Dim("batch", min=2), 1: Dim("sequence", min=3, max=8)},)
FACTS = OptimizationMetadata(model="toy", level="balanced")
NAN, INF = math.nan, math.inf


def shapes_of(plan: Plan) -> list[tuple[int, ...]]:
    """Return the distinct shapes of the first input, in order."""
    return list(dict.fromkeys(tuple(one[0].shape) for one in plan.checks))


class TestDrawnInputs:
    @pytest.mark.parametrize(
        ("sample", "dynamic", "shapes"),
        [
            ((4, 6), None, [(4, 6), (1, 6), (5, 6)]),
            ((1, 3), None, [(1, 3), (3, 3)]),  # neither has the example's batch of 2
            ((4, 4), MOVING, [(4, 4), (1, 1), (5, 6)]),  # axes take different steps
            ((4, 8), BOUNDED, [(4, 8), (2, 3), (5, 7)]),
            ((1, 6), STATIC, [(1, 6)]),
        ],
    )
    def test_three_inputs_of_each_shape(self, sample, dynamic, shapes):
        plan = Plan.from_inputs(torch.randn(sample), dynamic)
        assert shapes_of(plan) == shapes
        drawn = [tuple(one[0].shape) for one in plan.checks]
        assert [drawn.count(shape) for shape in shapes] == [3] * len(shapes)

    def test_sample_is_among_them(self):
        x = torch.randn(4, 6)
        plan = Plan.from_inputs(x)
        assert torch.equal(plan.checks[0][0], x)
        assert not any(torch.equal(x, one[0]) for one in plan.checks[1:])

    def test_the_same_every_time(self):
        x = torch.randn(4, 6)
        state = torch.get_rng_state()
        first, again = Plan.from_inputs(x).checks, Plan.from_inputs(x).checks
        assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
        assert torch.equal(state, torch.get_rng_state())

    def test_example_is_never_one_long(self):
        x = torch.randn(1, 3)
        plan = Plan.from_inputs(x)
        assert torch.equal(plan.example[0], torch.cat([x, x]))
        assert Plan.from_inputs(x, STATIC).example[0].shape == (1, 3)

    def test_example_is_a_copy(self):
        x = torch.randn(2, 3)
        kept = x.clone()
        Plan.from_inputs(x).example[0].add_(1)  # as a traced model may do
        assert torch.equal(x, kept)

    def test_inputs_of_one_axis_move_together(self):
        batch = Dim("batch")
        sample = (torch.randn(4, 6), torch.randn(2, 4), torch.tensor(1.0))
        plan = Plan.from_inputs(sample, ({0: batch}, {1: batch}, {}))
        shapes = {tuple(tuple(t.shape) for t in one) for one in plan.checks}
        assert shapes == {((n, 6), (2, n), ()) for n in (4, 1, 5)}

    @pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.bool, torch.float64])
    def test_numbers_are_the_samples_own(self, dtype):
        sample = torch.tensor([[0, 7], [1, 3]]).to(dtype)
        for one in Plan.from_inputs(sample).checks:
            assert one[0].dtype == dtype
            assert set(one[0].flatten().tolist()) <= set(sample.flatten().tolist())

    def test_equal_numbers_are_replaced(self):
        plan = Plan.from_inputs(torch.ones(4, 6))
        assert all(one[0].std() > 0.3 for one in plan.checks if one[0].shape != (4, 6))

    @pytest.mark.parametrize(
        ("shapes", "dynamic", "told"),
        [
            ([(2, 0)], None, r"shape \(2, 0\) has no numbers: pass checks="),
            ([(4, 6), (3, 6)], None, r"\[\(4, 6\), \(3, 6\)\] share no batch.*dynamic="),
            ([(4, 6), (4, 6)], ({0: Dim("b")},), "dynamic has 1 mappings for 2 inputs"),
        ],
    )
    def test_refusals(self, shapes, dynamic, told):
        with pytest.raises(ValueError, match=told):
            Plan.from_inputs([torch.randn(shape) for shape in shapes], dynamic)

    @pytest.mark.parametrize("dim", [Dim.AUTO, 2 * Dim("half")], ids=["hint", "derived"])
    def test_axes_that_cannot_be_drawn(self, dim):
        x = torch.randn(4, 6)
        with pytest.raises(ValueError, match="pass checks="):
            Plan.from_inputs(x, ({0: dim},))
        plan = Plan.from_inputs(x, ({0: dim},), [(x,), (x[:2],), (-x,)])
        assert [tuple(one[0].shape) for one in plan.checks] == [(4, 6), (2, 6), (4, 6)]

    def test_own_checks_must_prove_something(self):
        x = torch.randn(4, 6)
        with pytest.raises(ValueError, match="1 checks of 1 shapes prove too little: give 3"):
            Plan.from_inputs(x, checks=[(x,)])
        with pytest.raises(ValueError, match="of two shapes or more"):
            Plan.from_inputs(x, checks=[(x,), (-x,), (2 * x,)])
        assert len(Plan.from_inputs(x, STATIC, [(x,), (-x,), (2 * x,)]).checks) == 3


class TestDifference:
    @pytest.mark.parametrize(
        ("actual", "expected", "told"),
        [
            ([1.0, 2.0], [1.0, 2.0], 0.0),
            ([1.0, 2.5], [1.0, 2.0], 0.25),
            ([1.0, -4.0], [3.0, -4.0], 0.5),
            ([NAN, 1.0], [NAN, 2.0], 0.5),
            ([INF, 2.0], [INF, 2.0], 0.0),
            ([INF, 2.0], [-INF, 2.0], INF),
            ([NAN, 2.0], [1.0, 2.0], INF),
            ([1.0, 2.0], [NAN, 2.0], INF),
            ([1e-9, 0.0], [0.0, 0.0], INF),
            ([0.0, -0.0], [0.0, 0.0], 0.0),
            ([1, 2], [1, 2], 0.0),  # whole numbers are equal or not
            ([1, 1000], [1, 1001], INF),
            ([True], [False], INF),
            ([], [], 0.0),
        ],
    )
    def test_known(self, actual, expected, told):
        assert difference(torch.tensor(actual), torch.tensor(expected)) == told

    def test_leaves_in_order(self):
        a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
        assert [len(x) for x in leaves({"x": [b, (a,)], "y": None, "z": c})] == [2, 1, 3]
        with pytest.raises(TypeError, match="type str cannot be compared"):
            leaves((a, "text"))


class TestVerify:
    checks = tuple((torch.full((n, 2), float(n)),) for n in (1, 2, 3))
    expected = tuple([2 * one[0]] for one in checks)

    def run_wrong(self, wrong, tolerance=None) -> ExportMismatch:
        with pytest.raises(ExportMismatch) as told:
            verify("toy", wrong, self.checks, self.expected, tolerance=tolerance, advice="Do so.")
        return told.value

    def test_right_answers(self):
        verified = verify("toy", lambda x: x + x, self.checks, self.expected)
        assert [(one.shapes, one.max_difference) for one in verified] == [
            (((n, 2),), 0.0) for n in (1, 2, 3)
        ]
        assert {one.tolerance for one in verified} == {1e-4}

    def test_wrong_on_the_last_input_only(self):
        error = self.run_wrong(lambda x: x + x + (len(x) == 3) * 0.6)
        assert "toy: the re-loaded file differs from the model on 1 of 3 inputs" in str(error)
        assert "shapes ((3, 2),): difference 1.0e-01 is over 0.0001. Do so." in str(error)
        assert [one.good for one in error.verified] == [True, True, False]

    @pytest.mark.parametrize(("dtype", "limit"), TOLERANCE.items())
    def test_tolerance_of_the_dtype(self, dtype, limit):
        def off(factor):
            return torch.full((4,), 1 + factor * limit, dtype=torch.float64).to(dtype)

        wanted = [[torch.ones(4, dtype=dtype)]]
        assert verify("toy", lambda _: off(0.5), self.checks[:1], wanted)[0].tolerance == limit
        with pytest.raises(ExportMismatch):
            verify("toy", lambda _: off(2.0), self.checks[:1], wanted)

    def test_own_tolerance(self):
        def near(x):
            return x * 2.002

        assert verify("toy", near, self.checks, self.expected, tolerance=2e-3)
        assert "is over 0" in str(self.run_wrong(near, tolerance=0.0))

    def test_narrow_output_does_not_widen_its_neighbour(self):
        expected = [[torch.ones(2), torch.ones(2, dtype=torch.bfloat16)]]
        wrong = (torch.ones(2) + 0.01, torch.ones(2, dtype=torch.bfloat16))
        with pytest.raises(ExportMismatch, match=r"1\.0e-02 is over 0.0001"):
            verify("toy", lambda _: wrong, self.checks[:1], expected)

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            (lambda x: 2 * x.double(), "torch.float64"),
            (lambda x: (2 * x).t(), "outputs [((2, 1)"),
            (lambda x: (2 * x, 2 * x), "instead of"),
        ],
    )
    def test_other_kinds_of_outputs(self, wrong, told):
        assert told in str(self.run_wrong(wrong))

    def test_an_exception_is_a_difference(self):
        def broken(x):
            raise RuntimeError("cannot broadcast 40 by 120\nmore")

        error = self.run_wrong(broken)
        assert "RuntimeError: cannot broadcast 40 by 120. Do so." in str(error)
        assert all(one.max_difference == INF for one in error.verified)


class TestModel:
    def test_modes_come_back(self):
        model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout().eval()))

        def interrupted():
            with evaluating(model):
                assert not any(module.training for module in model.modules())
                raise KeyError

        with pytest.raises(KeyError):
            interrupted()
        assert [module.training for module in model.modules()] == [True, True, True, False]

    def test_answers_are_those_of_eval(self):
        model = nn.Sequential(nn.Dropout(0.9), nn.Linear(6, 2))
        x = torch.randn(4, 6)
        told = answers(model, [(x,)])
        assert torch.equal(told[0][0], model[1](x))
        assert model.training

    def test_a_model_must_say_something(self):
        class Silent(nn.Module):
            def forward(self, x):
                return None

        with pytest.raises(TypeError, match="Silent gives no tensors"):
            answers(Silent(), [(torch.ones(1),)])


class TestPublish:
    def attempt(self, path: Path, load) -> export.ExportResult:
        model, x = mlp(), torch.randn(2, 12)

        def write(draft: Path, facts: str) -> None:
            draft.write_text(facts)

        return publish(
            "toy",
            path,
            model,
            Plan.from_inputs(x),
            write=write,
            load=lambda draft: load(draft, model),
            tolerance=None,
            metadata=FACTS,
            advice="",
        )

    def test_verified_file_is_put_in_place(self, tmp_path):
        seen = []

        def load(draft, model):
            seen.append(OptimizationMetadata.from_json(draft.read_text()))
            return LoadedFile("toy", model.eval(), None)

        result = self.attempt(tmp_path / "m.toy", load)
        assert seen == [FACTS]
        assert result.size_bytes == len(FACTS.to_json())
        assert (result.inputs_verified, result.shapes_verified) == (9, 3)
        assert [path.name for path in tmp_path.iterdir()] == ["m.toy"]

    def test_wrong_file_replaces_nothing(self, tmp_path):
        (tmp_path / "m.toy").write_bytes(b"good")
        wrong = pytest.raises(ExportMismatch, match="on 9 of 9 inputs")
        with wrong:
            self.attempt(tmp_path / "m.toy", lambda *_: LoadedFile("toy", mlp(), None))
        assert (tmp_path / "m.toy").read_bytes() == b"good"
        assert len(list(tmp_path.iterdir())) == 1

    def test_file_that_cannot_be_loaded(self, tmp_path):
        def load(draft, model):
            raise NotImplementedError("no Erf")

        told = r"on 9 of 9 inputs.*it cannot be loaded \(NotImplementedError: no Erf\)"
        with pytest.raises(ExportMismatch, match=told):
            self.attempt(tmp_path / "m.toy", load)
        assert list(tmp_path.iterdir()) == []


class TestUnavailable:
    def test_missing_packages_are_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(
            ExportUnavailable, match=r"toy: onnxscript not .*pip install onnxscript"
        ):
            require("toy", "json", "onnxscript")
        require("toy", "json", "math")
        monkeypatch.setitem(sys.modules, "safetensors", None)
        for name in ("onnx", "safetensors"):
            with pytest.raises(ExportUnavailable, match="not installed; install them: pip"):
                export.EXPORTERS[name](mlp(), "m.onnx", torch.randn(2, 12))

    @pytest.mark.parametrize("name", ["torch_export", "onnx"])
    def test_wrong_suffix(self, name, tmp_path):
        with pytest.raises(ValueError, match=f"{name}: the path must end in '.(pt2|onnx)', got"):
            export.EXPORTERS[name](mlp(), tmp_path / "m.bin", torch.randn(2, 12))

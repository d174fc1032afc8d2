"""Tracebacks as pytest writes them, of failures that the release 0.4.6 is told to have had."""

from __future__ import annotations

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import TestOutcome

PYDANTIC = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DelayedScaling",
    "scaling_factor_compute_algo",
    "  Input should be a valid string [type=string_type, input_value=None, input_type=NoneType]",
    "    For further information visit https://errors.pydantic.dev/2.9/v/string_type",
)


def a10g_short(test: str, line: int) -> str:
    """``--tb=short``, one frame in the library of the exception."""
    said = "\n".join(f"E   {one}" for one in PYDANTIC)
    return f"""\
tests/test_fp8_training.py:{line}: in {test}
    engine = FP8TrainingEngine(model, config)
kernel_pytorch/precision/fp8_training_engine.py:{line + 40}: in __init__
    self.recipe = self.config.to_te_recipe()
kernel_pytorch/precision/fp8_training_engine.py:88: in to_te_recipe
    return DelayedScaling(margin=self.margin)
/opt/pytorch/lib/python3.12/site-packages/pydantic/_internal/_dataclasses.py:121: in __init__
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
{said}"""


def a10g_long(test: str, line: int) -> str:
    """The same in the long style."""
    said = "\n".join(f"E       {one}" for one in PYDANTIC)
    return f"""\
self = <test_fp8_training.TestEngine object at 0x7f0{line:x}a5b2c{line:02d}>

    def {test}(self):
        config = create_config()
>       engine = FP8TrainingEngine(model, config)

tests/test_fp8_training.py:{line}:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
kernel_pytorch/precision/fp8_training_engine.py:128: in __init__
    self.recipe = self.config.to_te_recipe()
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

self = FP8Config(margin={line})

    def to_te_recipe(self):
        margin = self.margin
>       return DelayedScaling(margin=margin)

kernel_pytorch/precision/fp8_training_engine.py:88:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def __init__(__dataclass_self__: PydanticDataclass, *args: Any, **kwargs: Any) -> None:
        s = __dataclass_self__
>       s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
{said}

/opt/pytorch/lib/python3.12/site-packages/pydantic/_internal/_dataclasses.py:121: ValidationError"""


def a10g_native(test: str, line: int) -> str:
    """The same as Python itself writes it."""
    said = "\n".join(PYDANTIC)
    return f"""\
Traceback (most recent call last):
  File "/home/ubuntu/release/tests/test_fp8_training.py", line {line}, in {test}
    engine = FP8TrainingEngine(model, config)
  File "/home/ubuntu/release/kernel_pytorch/precision/fp8_training_engine.py", line 88, in to_te_recipe
    return DelayedScaling(margin=self.margin)
  File "/opt/pytorch/lib/python3.12/site-packages/pydantic/_internal/_dataclasses.py", line 121, in __init__
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
{said}
"""  # noqa: E501


A10G_TESTS = (
    *("test_engine_creation", "test_engine_with_hybrid", "test_engine_setup", "test_train_step"),
    *("test_loss_scaling", "test_overflow_detection", "test_statistics", "test_checkpoint"),
    *("test_multi_step", "test_context_manager"),
)

TPU_TRAINING = """\
self = <test_tpu_backend.TestTPUOptimizer object at 0x7fdde8c0b1d0>

    def test_optimization_config(self):
        optimizer = TPUOptimizer(config)
        result = optimizer.optimize(model)
>       assert result.optimized_model.training is False
E       AttributeError: 'function' object has no attribute 'training'

tests/test_tpu_backend.py:412: AttributeError"""

TPU_DEVICE = """\
self = <test_tpu_backend.TestTPUErrorHandling object at 0x7fdde8b41c50>

    def test_invalid_device_error(self):
        backend = TPUBackend(config)
>       assert backend.device.type == 'cpu'
E       AssertionError: assert 'xla' == 'cpu'
E
E         - cpu
E         + xla

tests/test_tpu_backend.py:688: AssertionError"""


def failed(nodeid: str, text: str, message: str = "", **more: object) -> TestFact:
    """A failing test with its traceback."""
    outcome = more.pop("outcome", TestOutcome.FAILED)
    return TestFact("fp8", nodeid, outcome, True, 0.1, str(more.get("reason", "")), message, text)

"""Float8 matrix products for inference and training; scales quantise: q = x * scale."""

from torchbridge.float8 import (
    FP8Dtype,
    FP8QuantizedTensor,
    Granularity,
    compute_fp8_scale,
    dequantize_from_fp8,
    get_fp8_dtype,
    quantize_to_fp8,
)
from torchbridge.fp8.checks import (
    get_fp8_info,
    is_fp8_available,
    validate_fp8_setup,
    why_not_compiled,
)
from torchbridge.fp8.conversion import convert_model_to_native_fp8
from torchbridge.fp8.dispatch import Choice, Job, choose, predict
from torchbridge.fp8.inference import FP8InferenceEngine, FP8InferenceLinear
from torchbridge.fp8.linear import NativeFP8Linear
from torchbridge.fp8.matmul import Path, scaled_matmul
from torchbridge.fp8.training import (
    AmaxHistory,
    FP8Config,
    FP8Format,
    FP8LinearLayer,
    FP8TrainingEngine,
    convert_model_to_fp8_training,
    create_fp8_trainer,
)

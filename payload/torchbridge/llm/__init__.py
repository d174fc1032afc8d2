"""GPT-2 with a static KV cache: prefill, decode, int8 weights and comparison with a reference."""

from torchbridge.llm.agreement import Agreement, stepwise, teacher_forced
from torchbridge.llm.cache import KVCache
from torchbridge.llm.decode import CompiledDecode, GraphedDecode
from torchbridge.llm.generate import Sampling, attention_path, generate, next_token, prefill
from torchbridge.llm.gpt2 import GPT2, GPT2Config
from torchbridge.llm.optimizer import LLMConfig, LLMOptimizer, OptimizedLLM, QuantizationMode
from torchbridge.llm.quantise import (
    Int8Linear,
    Int8Path,
    Int8TokenTable,
    decode_path,
    int8_path,
    quantise_int8,
    quantise_rows,
)
from torchbridge.llm.weights import load_hf_weights

"""Where checkpoints are built, by their size and by what is computed."""

from __future__ import annotations

import pytest

from onboarding.text_generation.quantizer_route import quantizer_route
from tests.unit.onboarding.text_generation.shapes import LLAMA_8B, LLAMA_70B, SMOLLM, llama
from tests.unit.onboarding.text_generation.test_planner import _spec

ALREADY = llama(4096, 32, 32, 8, 14_336, quantization_config={"quant_method": "fp8"})


@pytest.mark.parametrize(
    ("checkpoint", "scheme", "route"),
    [
        (SMOLLM, "int8", "quantizer"),
        (LLAMA_8B, "int8", "quantizer-job"),
        (LLAMA_8B, "fp8", "quantizer-job"),
        (LLAMA_8B, "bf16", "quantizer"),
        (LLAMA_70B, "bf16", "quantizer-job"),
        (ALREADY, "fp8", "quantizer"),
    ],
)
def test_small_models_are_quantized_and_others_copied_without_a_gpu(checkpoint, scheme, route):
    assert quantizer_route(_spec(), scheme, checkpoint) == route


def test_gate_of_an_fp8_kv_cache_runs_the_model():
    spec = _spec(quantization={"kv_cache": "fp8"})
    assert quantizer_route(spec, "bf16", LLAMA_8B) == "quantizer-job"
    assert quantizer_route(spec, "bf16", SMOLLM) == "quantizer"

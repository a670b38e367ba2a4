"""What `check` says of a plan is what vLLM 0.30.0 does with it."""

from __future__ import annotations

import pytest

from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.plans import plan_text
from tests.unit.onboarding.text_generation.shapes import generator_tree, llama

FAQ = {"name": "faq", "source": "adapters/faq"}


def _faults(folder, change, **config):
    """Return what `check` says of a change of the base plan, on a checkpoint of such a config."""
    headers = {"models/data/own.json": llama(4096, 32, 32, 8, 14_336, **config).document()}
    text = plan_text({"source": {"headers": "models/data/own.json"}, **change})
    return list(map(str, read_tree(generator_tree(folder, text, headers)).faults))


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "auto-round", "bits": 4, "group_size": 128},
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
    ],
    ids=["auto-round", "modelopt-without-a-method"],
)
def test_accepts_quantized_checkpoints_that_vllm_loads(tmp_path, quantization):
    assert not _faults(tmp_path, {}, quantization_config=quantization)


@pytest.mark.parametrize(
    ("architecture", "is_refused"),
    [
        ("GPTNeoXForCausalLM", True),
        ("GPT2LMHeadModel", True),
        ("DbrxForCausalLM", True),
        ("StableLmForCausalLM", True),
        ("LlamaForCausalLM", False),
        ("Olmo2ForCausalLM", False),
    ],
)
def test_refuses_adapters_of_bases_that_take_none(tmp_path, architecture, is_refused):
    change = {"serving": {"adapters": [FAQ, {**FAQ, "name": "de"}]}}
    faults = _faults(tmp_path, change, architectures=[architecture])
    assert len(faults) == is_refused, faults
    assert all(architecture in fault and "merge each adapter" in fault for fault in faults)

"""What `check` says of a plan is what vLLM 0.30.0 does with it."""

from __future__ import annotations

import pytest

from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.plans import plan_text
from tests.unit.onboarding.text_generation.shapes import generator_tree, llama

FAQ = {"name": "faq", "source": "adapters/faq"}
AMI = {"inference_ami_version": "al2023-ami-sagemaker-inference-gpu-4-1"}
COMPONENT = {"kind": "inference-component"}


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
    ("serving", "says"),
    [
        ({"arguments": {"api_key": "x"}}, "'serving.arguments.api_key' is set by the plan"),
        ({"arguments": {"headless": True}}, "'serving.arguments.headless' is set by the plan"),
        ({"arguments": {"grpc": True}}, "'serving.arguments.grpc' is set by the plan"),
        ({"environment": {"VLLM_API_KEY": "x"}}, "VLLM_API_KEY' is set by the plan"),
        ({"environment": {"Ref": "main"}}, "environment.Ref' is no name that a model's template"),
        ({"environment": {"1a": "b"}}, "environment.1a' is no name that a model's template takes"),
        ({"arguments": {"api_server_count": 0}}, "without a server"),
        ({"arguments": {"api_server_count": 2}, "adapters": [FAQ]}, "above 1 has no adapters"),
    ],
)
def test_refuses_what_keeps_vllm_from_answering(tmp_path, serving, says):
    (fault,) = _faults(tmp_path, {"serving": serving, "endpoint": COMPONENT})
    assert says in fault and "take it out" in fault


SERVER_ROW = {"platform": "vllm-server-2.6", "max_num_queued_reqs": None}
OFF = {"arguments": {"enable_prefix_caching": False}}


@pytest.mark.parametrize(
    ("serving", "version"),
    [
        ({"platform": "vllm-0.27.1", "max_num_queued_reqs": None}, "0.27.1"),
        ({**SERVER_ROW, "engine_version": "0.29.0"}, "0.29.0"),
    ],
)
def test_refuses_a_flag_that_it_cannot_turn_off(tmp_path, serving, version):
    (fault,) = _faults(tmp_path, {"serving": {**serving, **OFF}, "endpoint": AMI})
    assert f"how vLLM {version} turns --enable-prefix-caching off is not known" in fault
    assert "choose a platform with vLLM 0.30.0" in fault


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
    change = {"serving": {"adapters": [FAQ, {**FAQ, "name": "de"}]}, "endpoint": COMPONENT}
    faults = _faults(tmp_path, change, architectures=[architecture])
    assert len(faults) == is_refused, faults
    assert all(architecture in fault and "merge each adapter" in fault for fault in faults)

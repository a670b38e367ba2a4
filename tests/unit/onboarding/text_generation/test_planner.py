"""The planner proposes the cheapest type that holds the SLO, and says why the others do not."""

from __future__ import annotations

import dataclasses
import json

import pytest
import yaml

from onboarding.generation_resolve import generation_plans, plan_line
from onboarding.platform import instance_types
from onboarding.text_generation.arguments import container_environment, engine_arguments
from onboarding.text_generation.checkpoint_key import quantizer_route
from onboarding.text_generation.cuda_graphs import graph_tokens, planned_graph_tokens
from onboarding.text_generation.kv_cache import cache_layers
from onboarding.text_generation.planner import (
    Request,
    Speed,
    choose,
    step_sequences,
    step_tokens,
)
from onboarding.text_generation.platforms import (
    engine_server,
    format_speed,
    gpus,
    known_arguments,
    schemes,
)
from onboarding.text_generation.spec import ContextSpec, TextGenerationSpec
from onboarding.text_generation.weights import count_weights
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.shapes import (
    FIXTURES,
    LLAMA_8B,
    LLAMA_70B,
    SMOLLM,
    generator_tree,
    llama,
)

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
H200 = json.loads((FIXTURES / "vllm_kv_cache" / "h200.json").read_text())
PRICES = {"ml.g5.2xlarge": 1.5, "ml.g5.12xlarge": 7.0, "ml.g6.2xlarge": 1.2, "ml.p5en.48xlarge": 60}
TYPES = ("ml.g5.2xlarge", "ml.g5.12xlarge", "ml.g6.2xlarge", "ml.g6e.2xlarge")


def _spec(**changes) -> TextGenerationSpec:
    data = yaml.safe_load(BASE)
    for section, values in changes.items():
        data[section] = {**data[section], **values}
    return TextGenerationSpec.model_validate_json(json.dumps(data))


def _choose(spec, checkpoint=LLAMA_8B, types=TYPES, prices=PRICES):
    request = Request(
        spec=spec, checkpoint=checkpoint, engine_version="0.30.0", price=dict(prices).get
    )
    return choose(request, [instance_types()[name] for name in types])


def test_cheapest_that_holds_comes_first_and_others_say_why():
    first, *others = _choose(_spec(slo={"itl_p95_ms": 55}))
    assert first.instance_type == "ml.g5.2xlarge" and first.holds and first.reason is None
    assert first.usd_an_hour == pytest.approx(1.5 * first.instances)
    reasons = {item.instance_type: item.reason for item in others}
    assert "USD an hour" in reasons["ml.g5.12xlarge"]
    assert "price is not known" in reasons["ml.g6e.2xlarge"]
    assert "even alone" in reasons["ml.g6.2xlarge"]


def test_copies_are_as_many_as_the_concurrency_needs():
    one = _choose(_spec(slo={"concurrency": 1}), types=("ml.g5.2xlarge",))[0]
    spec = _spec(slo={"concurrency": one.expected_requests + 1})
    two = _choose(spec, types=("ml.g5.2xlarge",))[0]
    assert (one.copies, one.instances, two.copies, two.instances) == (1, 1, 2, 2)
    three = _spec(slo={"concurrency": 2 * one.expected_requests + 1})
    refused = _choose(three, types=("ml.g5.2xlarge",))[0]
    assert not refused.holds and "endpoint.copies.max is 2" in refused.reason


def test_inference_components_place_a_copy_on_each_gpu():
    item = _choose(_spec(), types=("ml.g5.12xlarge",))[0]
    assert (item.copies_per_instance, item.tensor_parallel, item.instances) == (4, 1, 1)


def test_tensor_parallel_is_the_fewest_gpus_that_fit():
    large = _spec(slo={"itl_p95_ms": 400, "ttft_p95_ms": 9000})
    assert _choose(large, LLAMA_70B, ("ml.p5en.48xlarge",))[0].tensor_parallel == 2
    assert _choose(large, LLAMA_70B, ("ml.g6e.48xlarge",))[0].tensor_parallel in (4, 8)
    assert _choose(_spec(), SMOLLM, ("ml.g6.12xlarge",))[0].tensor_parallel == 1


def _speed(checkpoint, scheme="bf16", size=1, kv_bytes=2):
    return Speed(
        gpu=gpus()["H200"],
        weights=count_weights(checkpoint, schemes()[scheme], size),
        layers=cache_layers(checkpoint.config),
        scheme=schemes()[scheme],
        kv_bytes=kv_bytes,
        tensor_parallel=size,
        hidden=checkpoint.config["hidden_size"],
        context=ContextSpec(max_model_len=8192, prompt_p95=512, output_p95=128),
        step_tokens=16_384,
        graph_tokens=512,
    )


@pytest.mark.parametrize("row", H200["output_tokens_per_second"], ids=lambda row: row["scheme"])
def test_rates_are_those_of_an_h200(row):
    checkpoint = {"8b": LLAMA_8B, "70b": LLAMA_70B}[row["shape"]]
    kv_bytes = 1 if row["kv"] == "fp8" else 2
    speed = _speed(checkpoint, row["scheme"], row["tensor_parallel"], kv_bytes)
    for batch, tokens in row["by_batch"].items():
        assert _rate(speed, int(batch)) == pytest.approx(tokens, rel=0.13)


def _rate(speed, batch):
    """The output tokens a second of a batch of 512 tokens in and 128 out, all read at once."""
    step, prompts, seconds = speed.step_times(), 512 * batch, 0.0
    while prompts:
        part = min(prompts, speed.step_tokens)
        seconds += step(part, 0, 0)
        prompts -= part
    seconds += sum(step(0, batch, batch * (512 + number)) for number in range(1, 128))
    return 128 * batch / seconds


CAPTURED, EAGER = {"cudagraph_capture_sizes": 256}, {"enforce_eager": True}


@pytest.mark.parametrize(
    ("gpu", "serving", "planned", "tokens"),
    [
        ("H200", {}, 2048, 2048),
        ("H200", {"gpu_memory_utilization": 0.95}, None, 512),
        ("H200", {"adapters": [{"name": "a", "source": "a", "rank": 16}]}, None, 512),
        ("H200", {"speculative": {"method": "ngram", "tokens": 4}}, None, 512),
        ("H200", {"arguments": {"max_cudagraph_capture_size": 1024}}, None, 1024),
        ("H200", {"arguments": CAPTURED}, None, 512),
        ("H200", {"arguments": EAGER}, None, 0),
        ("H100", {}, None, 512),
        ("L4", {"max_num_seqs": 32}, None, 64),
        (None, {}, None, 512),
    ],
)
def test_graphs_hold_more_tokens_on_a_fast_gpu_with_memory_left(gpu, serving, planned, tokens):
    case = _spec(serving=serving), {"model_type": "llama"}, gpus().get(gpu)
    assert planned_graph_tokens(*case) == planned
    assert graph_tokens(*case) == tokens


def test_graphs_of_architectures_that_nobody_measured_are_the_engines():
    assert planned_graph_tokens(_spec(), {"model_type": "mixtral"}, gpus()["H200"]) is None


@pytest.mark.parametrize("version", ["0.26.0", "0.27.1", "0.30.0"])
def test_every_version_knows_the_argument_of_graphs(version):
    (name,) = engine_arguments(_spec(), 1, 2048).keys() - engine_arguments(_spec(), 1, None).keys()
    assert name in (known_arguments(version) or ())


def test_step_that_no_graph_holds_is_launched_layer_by_layer():
    row, core = format_speed("sixteen_bit"), 1e-6 * engine_server().core_us
    launch = _speed(LLAMA_8B).launch_times()
    assert launch(0, 16) == pytest.approx(16 * core)
    assert launch(496, 16) == pytest.approx(32e-6 * row.pieces_us + 16 * core)
    assert launch(497, 16) == pytest.approx(32e-6 * row.eager_us + 16 * core)
    eager = dataclasses.replace(_speed(LLAMA_8B), graph_tokens=0).launch_times()
    assert eager(0, 1) > 0.9 * 32e-6 * row.eager_us


def test_arguments_are_the_plans_and_known_to_the_engine():
    spec = _spec(
        serving={
            "speculative": {"method": "ngram", "tokens": 4},
            "adapters": [{"name": "a", "source": "a", "rank": 40}],
            "arguments": {"enable_auto_tool_choice": True, "enable_prefix_caching": False},
        }
    )
    found = engine_arguments(spec, 2, None)
    assert found.keys() <= (known_arguments("0.30.0") or set())
    assert found["max_lora_rank"] == 64 and found["tensor_parallel_size"] == 2
    assert "quantization" not in found
    variables = container_environment(spec, 2, "0.30.0", None)
    assert variables["SM_VLLM_SERVED_MODEL_NAME"] == "chat"
    assert variables["SM_VLLM_ENABLE_AUTO_TOOL_CHOICE"] == "true"
    assert variables["SM_VLLM_NO_ENABLE_PREFIX_CACHING"] == "true"
    assert "SM_VLLM_ENABLE_PREFIX_CACHING" not in variables
    assert variables["STANDARD_AUTO_INSTALL_REQ"] == "false"
    assert variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "true"


def test_model_without_headers_names_the_way_out(tmp_path):
    text = BASE.replace("  headers: models/data/8b.json\n", "")
    tree = read_tree(generator_tree(tmp_path, text))
    (plan,) = generation_plans(tree, "cloud")
    assert not tree.faults and plan.chosen is None
    assert "`roundhouse check --fetch-headers`" in plan_line(plan)


@pytest.mark.parametrize(
    ("gpu", "sizes"),
    [("A10G", (2048, 256)), ("A100 80GB", (2048, 256)), ("H200", (8192, 1024))],
)
def test_steps_have_vllms_own_sizes_unless_the_file_names_others(gpu, sizes):
    assert (step_tokens(_spec(), gpus()[gpu]), step_sequences(_spec(), gpus()[gpu])) == sizes
    own = _spec(serving={"max_num_batched_tokens": 512, "max_num_seqs": 9})
    assert (step_tokens(own, gpus()[gpu]), step_sequences(own, gpus()[gpu])) == (512, 9)


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

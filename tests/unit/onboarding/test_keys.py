"""Keys change with every input that changes an engine, and with nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from onboarding.keys import engine_keys
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.platform import instance_types, serving_platforms
from onboarding.resolve import quantization_mode, runtime_identity

DIGESTS = {"a.txt": "a" * 64, "b.txt": "b" * 64, "c.txt": "c" * 64, "d.txt": "d" * 64}

MODEL = yaml.safe_load("""
name: example
task: text-embedding
source: {python_package: example-model==1.0.0, path: model, sha256: aaaa}
engine:
  precision: auto
  optimization_profiles: [{batch: [1, 4, 8], sequence: [8, 16, 32]}]
  calibration: {dataset: a.txt, samples: 4, method: max}
  sensitivity_search: {dataset: d.txt, samples: 3}
accuracy: {dataset: b.txt, metric: cosine, budget: {mean: 0.99, worst: 0.9}}
serving:
  server: triton
  dynamic_batching: {preferred_batch_sizes: [4], max_queue_delay_us: 100, max_batch_size: 8}
endpoint: {instance_type: ml.g5.xlarge, latency_slo_ms: 50, scaling: {min: 1, max: 2}}
""")

# Every field of a model file, another value for it, and what that changes.
CHANGES: dict[str, tuple[Any, str]] = {
    "name": ("other", "packaging"),
    "task": ("text-classification", "networks"),
    "source.python_package": ("example-model==1.0.1", "networks"),
    "source.huggingface": ("o/n@" + "0" * 40, "networks"),
    "source.onnx": ("s3://b/m.onnx", "networks"),
    "source.checkpoint": ("models/mine", "networks"),
    "source.path": ("other", "networks"),
    "source.sha256": ("bbbb", "networks"),
    "source.pooling": ({"mode": "cls"}, "networks"),
    "source.prompts": ({"query": "query: "}, "networks"),
    "source.default_prompt_name": ("query", "networks"),
    "engine.precision": ("int8", "engine"),
    "engine.optimization_profiles.batch": ([1, 4, 16], "engine"),
    "engine.optimization_profiles.sequence": ([8, 16, 64], "int8 network"),
    "engine.calibration.dataset": ("c.txt", "int8 network"),
    "engine.calibration.samples": (5, "int8 network"),
    "engine.calibration.method": ("entropy", "int8 network"),
    "engine.sensitivity_search.dataset": ("c.txt", "int8 network"),
    "engine.sensitivity_search.samples": (4, "int8 network"),
    "engine.quantization": ("calibration-cache", "int8 network"),
    "engine.workspace_mib": (512, "engine"),
    "engine.optimization_level": (5, "engine"),
    "engine.hardware_compatibility": ("ampere+", "engine"),
    "engine.version_compatible": (True, "engine"),
    "engine.opset": (18, "networks"),
    "engine.sparsity": ("enable", "engine"),
    "engine.plugins": (
        [{"file": "models/libscale.so", "sha256": "0" * 64, "operators": ["Scale"]}],
        "networks",
    ),
    "accuracy.dataset": ("c.txt", "int8 network"),
    "accuracy.metric": ("agreement", "int8 network"),  # the search stops where the budget holds
    "accuracy.budget.mean": (0.98, "int8 network"),
    "accuracy.budget.worst": (0.8, "int8 network"),
    "accuracy.outputs": ({"o": {"metric": "agreement"}}, "int8 network"),
    "accuracy.budget.neighbours": (0.9, "int8 network"),
    "accuracy.reference": ({"onnx": "float.onnx", "sha256": "c" * 64}, "int8 network"),
    "labels": ({"team": "search"}, "nothing"),
    "serving.server": ("python", "nothing"),  # every archive suits both
    "serving.runtime": ("onnxruntime-cuda", "engine"),
    "serving.dynamic_batching.preferred_batch_sizes": ([2], "packaging"),
    "serving.dynamic_batching.max_queue_delay_us": (0, "packaging"),
    "serving.dynamic_batching.max_batch_size": (4, "packaging"),
    "serving.instances_per_gpu": (2, "packaging"),
    "serving.warm_up": (False, "packaging"),
    "serving.response_cache": (True, "packaging"),
    "serving.auto_truncate": (False, "packaging"),
    "serving.preprocessing": ({"file": "a.py", "sha256": "0" * 64}, "packaging"),
    "serving.postprocessing": ({"file": "a.py", "sha256": "0" * 64}, "packaging"),
    "endpoint.instance_type": ("ml.g5.4xlarge", "nothing"),  # the same GPU
    "endpoint.latency_slo_ms": (10, "nothing"),
    "endpoint.scaling.min": (2, "nothing"),
    "endpoint.scaling.max": (3, "nothing"),
    "endpoint.scaling.safety_factor": (0.6, "nothing"),
    "endpoint.scaling.gpu_utilization_percent": (60, "nothing"),
    "endpoint.scaling.scale_out_cooldown_seconds": (30, "nothing"),
    "endpoint.scaling.scale_in_cooldown_seconds": (30, "nothing"),
    "endpoint.scaling.schedule": ([{"schedule": "cron(0 7 * * ? *)", "min": 2}], "nothing"),
    "endpoint.rollout": ("linear", "nothing"),
    "endpoint.weight": (2, "nothing"),
    "endpoint.instance_pools": (
        [{"instance_type": "ml.g6.xlarge"}],
        "nothing",
    ),  # an engine more; this one stays
    "endpoint.data_capture": (
        {"percent": 10},
        "nothing",
    ),
    "endpoint.asynchronous": ({"max_concurrent_invocations": 4}, "nothing"),
    "endpoint.metrics": ({"detailed": True}, "nothing"),
    "endpoint.network_isolation": (False, "nothing"),
}
LISTED_WHOLE = (
    "source.pooling",
    "endpoint.scaling.schedule",
    "endpoint.instance_pools",
    "endpoint.data_capture",
    "endpoint.asynchronous",
    "endpoint.metrics",
    "accuracy.outputs",
    "accuracy.reference",
    "serving.preprocessing",
    "serving.postprocessing",
    "engine.plugins",
)
"""Fields whose own fields all change the same."""
JOINING = {"endpoint.joins", "endpoint.role"}
"""Of a model that has no endpoint of its own."""


def keys(
    data: dict[str, Any], *, platform: str = "triton-26.05", digests: dict[str, str] = DIGESTS
) -> dict[str, str]:
    spec = ModelSpec.model_validate_json(json.dumps(data))
    row = serving_platforms()[platform]
    assert isinstance(spec.endpoint, EndpointSpec)
    instance = instance_types()[spec.endpoint.instance_type]
    found = engine_keys(
        spec,
        runtime=runtime_identity(spec, row, instance),
        instance=instance,
        quantization=quantization_mode(spec, row),
        dataset_digests=digests,
    )
    return found.networks | {"plan": found.plan, "engine": found.engine}


def with_value(path: str, value: Any, data: dict[str, Any] = MODEL) -> dict[str, Any]:
    result = copy.deepcopy(data)
    *parents, last = path.split(".")
    node: Any = result
    for parent in parents:
        node = node.setdefault(parent, {})
        node = node[0] if isinstance(node, list) else node
    node[last] = value
    return result


def leaves(spec_type: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, field in spec_type.model_fields.items():
        inner = _models(field.annotation)
        found |= (
            {f"{name}.{leaf}" for model in inner for leaf in leaves(model)} if inner else {name}
        )
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def test_every_field_of_a_model_file_is_classified():
    found = {
        next((whole for whole in LISTED_WHOLE if leaf.startswith(whole)), leaf)
        for leaf in leaves(ModelSpec)
        if not leaf.startswith("source.triton_repository")  # test_triton_repository has its key
    }
    assert found == set(CHANGES) | JOINING


@pytest.mark.parametrize("path", CHANGES)
def test_keys_change_with_a_field_as_classified(path):
    value, effect = CHANGES[path]
    before, after = keys(MODEL), keys(with_value(path, value))
    differing = {name for name in before if before[name] != after[name]}
    expected = {
        "nothing": set(),
        "packaging": {"engine"},
        "engine": {"plan", "engine"},
        "int8 network": {"int8", "plan", "engine"},
        "networks": {"float", "int8", "plan", "engine"},
    }
    assert differing == expected[effect]


def test_keys_are_golden():
    """A change here changes every key: raise RECIPE_VERSION when inputs give other bytes."""
    assert keys(MODEL) == {
        "float": "1ecb4e9b1a886f14e448",
        "int8": "f9b2930b7a7a94a0907b",
        "plan": "cd8f4e2e590a2f02b052",
        "engine": "334a8c6dec3d6f885791",
    }
    on_cpu = with_value("endpoint.instance_type", "ml.c7i.large")
    assert keys(on_cpu, platform="triton-24.10-cpu")["engine"] == "d337fa0b6dc98a1e255a"


PLUGIN = {"file": "models/libscale.so", "sha256": "0" * 64, "operators": ["Scale"]}
CODE = {"file": "models/code/a.py", "sha256": "0" * 64}
ON_CPU = with_value("endpoint.instance_type", "ml.c7i.large")
PLAIN = [with_value("engine.precision", precision) for precision in ("fp32", "fp16")]


@pytest.mark.parametrize(
    ("data", "path", "value", "other"),
    [
        # Defaults written out.
        (MODEL, "serving.warm_up", True, None),
        (MODEL, "serving.auto_truncate", True, None),
        (MODEL, "serving.runtime", "tensorrt", None),
        (MODEL, "accuracy.budget.neighbours", None, None),
        (MODEL, "engine.sparsity", "disable", None),
        (MODEL, "engine.opset", 17, None),
        (MODEL, "engine.plugins", [], None),
        (MODEL, "accuracy.budget.mean", 1, 1.0),
        # Places of what is pinned by its digest.
        (MODEL, "source", {"onnx": "m.onnx", "sha256": "aa"}, {"onnx": "s3://b/n", "sha256": "aa"}),
        (MODEL, "engine.plugins", [PLUGIN], [PLUGIN | {"file": "s3://b/libscale.so"}]),
        (MODEL, "serving.preprocessing", CODE, CODE | {"file": "models/code/b.py"}),
        # What no engine of that kind holds.
        (ON_CPU, "engine.plugins", [PLUGIN], [PLUGIN | {"sha256": "1" * 64}]),
        (ON_CPU, "engine.sparsity", "enable", "disable"),
        (ON_CPU, "engine.workspace_mib", 512, None),
        *((plain, "engine.calibration.samples", 5, 4) for plain in PLAIN),
        *((plain, "engine.quantization", "calibration-cache", None) for plain in PLAIN),
    ],
)
def test_keys_are_the_same(data, path, value, other):
    platform = "triton-24.10-cpu" if data is ON_CPU else "triton-26.05"
    known = data if other is None else with_value(path, other, data)
    assert keys(with_value(path, value, data), platform=platform) == keys(known, platform=platform)


def test_keys_follow_the_bytes_of_a_dataset_never_its_name():
    moved = with_value("engine.calibration.dataset", "moved.txt")
    assert keys(moved, digests={**DIGESTS, "moved.txt": DIGESTS["a.txt"]}) == keys(MODEL)
    other_bytes = keys(MODEL, digests={**DIGESTS, "a.txt": "f" * 64})
    assert (
        other_bytes["float"] == keys(MODEL)["float"] and other_bytes["int8"] != keys(MODEL)["int8"]
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ml.g6.xlarge", "ml.g6e.xlarge"),
        ("ml.p5.48xlarge", "ml.p5en.48xlarge"),
        ("ml.g7.2xlarge", "ml.g7e.2xlarge"),
        ("ml.p4d.24xlarge", "ml.p4de.24xlarge"),
    ],
)
def test_engine_key_holds_the_gpu_model_of_a_plan_for_that_model_alone(one, other):
    def keys_on(instance, level):
        on_instance = with_value("endpoint.instance_type", instance)
        return keys(with_value("engine.hardware_compatibility", level, on_instance))

    assert keys_on(one, "none")["engine"] != keys_on(other, "none")["engine"]
    for level in ("same_compute_capability", "ampere+"):
        assert keys_on(one, level) == keys_on(other, level)


def test_plan_key_leaves_out_prompts_that_no_build_uses():
    """The default stands before the texts of calibration and validation; others come at serving."""

    def plan(**source: Any) -> str:
        return keys(MODEL | {"source": MODEL["source"] | source})["plan"]

    prompts = {"query": "query: ", "passage": "passage: "}
    one = plan(prompts=prompts, default_prompt_name="query")
    assert one == plan(prompts=prompts | {"passage": "p: "}, default_prompt_name="query")
    assert one == plan(prompts={"query": "query: "}, default_prompt_name="query")
    assert one != plan(prompts=prompts | {"query": "q: "}, default_prompt_name="query")
    assert one != plan(prompts=prompts, default_prompt_name="passage")
    # Without a name the checkpoint has the default, and these may take its place.
    assert plan(prompts=prompts) != plan(prompts=prompts | {"passage": "p: "})

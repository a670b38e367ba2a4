"""Content addresses: digests of all that decides a network or an engine, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from onboarding.manifest import RuntimeIdentity
from onboarding.model_spec import (
    REPOSITORY,
    AccuracySpec,
    EnsembleSpec,
    ModelSpec,
    RepositorySpec,
    SensitivitySearchSpec,
)
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.serving_spec import ServingSpec
from onboarding.source_spec import SourceSpec
from onboarding.values import (
    EXPORT_OPSET,
    LEAST_FP8,
    TEXT_TASKS,
    Precision,
    QuantizationMode,
    Runtime,
)

RECIPE_VERSION = 4
"""Raised by hand when the same inputs must give other bytes: a changed exporter, quantizer,
compiler option or archive layout.
"""

QUANTIZER_VERSION = 3
"""Raised by hand when the same calibration must give another Q/DQ network; other keys stay."""

CNN_QUANTIZER_VERSION = 4
"""The same, of tasks without texts, whose networks may pool images."""

FP8_QUANTIZER_VERSION = 1
"""The same, of FP8 networks."""

HALF_PRECISION_VERSION = 2
"""Raised by hand when the same network must become another one in FP16 (engine_build/tensorrt)."""

KEY_LENGTH = 20


def network_precisions(
    spec: ModelSpec, instance: InstanceType, quantization: QuantizationMode
) -> tuple[str, ...]:
    """Return the networks of an engine: `float` always, `int8` where the build may quantize.

    `fp8` where it is asked for, and under `auto` where a GPU computes in it. A source that holds
    Q/DQ nodes has no calibration: its own network is the only one.
    """
    precision = spec.engine.precision
    if spec.engine.calibration is None or precision not in ("int8", "fp8", "auto"):
        return ("float",)
    if precision == "auto" and quantization == "explicit" and computes_fp8(instance):
        return ("float", "int8", "fp8")
    return ("float", "fp8" if precision == "fp8" else "int8")


def computes_fp8(instance: InstanceType) -> bool:
    """Return True for a GPU with FP8's kernels, which every TensorRT since 10 has."""
    return instance.is_gpu and float(instance.compute_capability) >= LEAST_FP8


def network_key(
    spec: ModelSpec,
    network_precision: str,
    dataset_digests: Mapping[str, str],
    *,
    quantization: QuantizationMode = "explicit",
) -> str:
    """Return the key of one ONNX network, shared by every GPU.

    It holds source, task, opset, and for `int8` the calibration. `dataset_digests` maps each
    dataset path of the spec to the sha256 of its bytes.
    """
    inputs: dict[str, Any] = {
        "recipe": RECIPE_VERSION,
        "source": _source(spec.source),
        "task": spec.task,
        "network_precision": network_precision,
    }
    if spec.task == "text-classification":
        # Answers have labels and scores since; one key never stands for two forms of an answer.
        inputs["answers"] = "labels and scores"
    if spec.engine.plugins:
        # Their operators stay nodes of the network; functions of others do not.
        inputs["operators"] = sorted(
            name for item in spec.engine.plugins for name in item.operators
        )
    if spec.engine.opset not in (None, EXPORT_OPSET):
        # Younger than its recipe: the default is left out, so that no key of before changes.
        inputs["opset"] = spec.engine.opset
    if network_precision == "int8" and spec.engine.calibration is not None:
        calibration = spec.engine.calibration
        inputs["calibration"] = {
            "dataset": dataset_digests[calibration.dataset],
            "samples": calibration.samples,
            "method": calibration.method,
        }
        inputs["longest_sequence"] = _longest_sequence(spec)
        inputs["quantization"] = quantization
        if quantization == "explicit":
            has_texts = spec.task in TEXT_TASKS
            inputs["quantizer"] = QUANTIZER_VERSION if has_texts else CNN_QUANTIZER_VERSION
            if spec.engine.optimization_profiles[0].batch[1] == 1:
                # A product with one row for a sample gains nothing from INT8.
                inputs["opt_batch"] = 1
            if spec.engine.sensitivity_search is None:
                inputs["every_layer"] = _confirmation(spec, dataset_digests)
        if spec.engine.sensitivity_search is not None:
            inputs["sensitivity_search"] = _search(
                spec, spec.engine.sensitivity_search, dataset_digests
            )
    if network_precision == "fp8" and spec.engine.calibration is not None:
        # Maxima, whatever the method.
        inputs["calibration"] = {
            "dataset": dataset_digests[spec.engine.calibration.dataset],
            "samples": spec.engine.calibration.samples,
        }
        inputs["longest_sequence"] = _longest_sequence(spec)
        inputs["quantizer"] = FP8_QUANTIZER_VERSION
    return digest(inputs)


def plugin_operators(spec: ModelSpec) -> frozenset[str]:
    """Return the operators of a network that plugins compute."""
    return frozenset(name for plugin in spec.engine.plugins for name in plugin.operators)


def runtime_name(spec: ModelSpec, instance: InstanceType) -> Runtime:
    """Return what executes a model on an instance type, where its file leaves it open too."""
    given = spec.serving.runtime
    if spec.source.triton_repository is not None:
        return "triton"
    if given is not None:
        return given
    return "tensorrt" if instance.is_gpu else "onnxruntime"


def plan_gpu(spec: ModelSpec, instance: InstanceType) -> str | None:
    """Return the GPU model that a plan built for an instance type runs on alone.

    None: no TensorRT plan, or one that its hardware compatibility lets run on other models.
    TensorRT plans are specific to the GPU model, unless a hardware compatibility level is set.
    """
    is_plan = runtime_name(spec, instance) == "tensorrt"
    return instance.gpu if is_plan and spec.engine.hardware_compatibility == "none" else None


class EngineKeys(NamedTuple):
    """The keys of one engine, and of the networks that it may be compiled from."""

    engine: str
    """Of its archive: the plan as it is packaged and served."""
    plan: str
    """Of what is compiled, judged and timed, whatever its packaging."""
    networks: dict[str, str]


def engine_keys(
    spec: ModelSpec,
    *,
    runtime: RuntimeIdentity,
    instance: InstanceType,
    quantization: QuantizationMode,
    dataset_digests: Mapping[str, str],
) -> EngineKeys:
    """Return the keys of one engine.

    They hold networks, exact runtime build, compute capability, the GPU model where the plan runs
    on that model alone, precision, profiles and budget; the accuracy's dataset and budget decide
    the precision under `auto`, and the verdicts that the record holds. Endpoint, scaling and
    rollout change how an engine is deployed, never its bytes. `serving.server` is no part of it:
    every archive suits both servers.

    Engines of one plan key differ in name, batching, instances, warm-up, truncation, a user's own
    code, or prompts that no build uses.
    """

    def compiled(spec: ModelSpec, networks: Mapping[str, str]) -> dict[str, Any]:
        # Sums of INT8 saturated before on CPUs without VNNI.
        is_cpu_int8 = not instance.is_gpu and "int8" in networks
        return {
            **({"sums": "exact"} if is_cpu_int8 else {}),
            "recipe": RECIPE_VERSION,
            "networks": networks,
            "runtime": runtime.model_dump(mode="json"),
            "compute_capability": instance.compute_capability,
            "gpu": plan_gpu(spec, instance),
            "precision": spec.engine.precision,
            "optimization_profiles": [
                p.model_dump(mode="json") for p in spec.engine.optimization_profiles
            ],
            "compiler": _compiler(spec) if runtime.name == "tensorrt" else None,
            "accuracy": {
                "dataset": dataset_digests[spec.accuracy.dataset],
                **_accuracy_fields(spec.accuracy),
            },
        }

    def networks(spec: ModelSpec) -> dict[str, str]:
        return {
            name: network_key(spec, name, dataset_digests, quantization=quantization)
            for name in network_precisions(spec, instance, quantization)
        }

    own, packaging = networks(spec), {"name": spec.name, "serving": _packaged(spec.serving)}
    return EngineKeys(
        engine=digest({**compiled(spec, own), **packaging}),
        plan=digest(compiled(spec, networks(_with_default_prompt(spec)))),
        networks=own,
    )


def _with_default_prompt(spec: ModelSpec) -> ModelSpec:
    """Leave out prompts that calibration and validation do not put before their texts.

    Only where the file names the default: else the checkpoint does, and its name is not known here.
    """
    source = spec.source
    if source.prompts is None or source.default_prompt_name is None:
        return spec
    name = source.default_prompt_name
    used = {name: source.prompts[name]} if name in source.prompts else None
    return spec.model_copy(update={"source": source.model_copy(update={"prompts": used})})


def chosen_network(precision: Precision) -> str:
    """The network that an engine of a precision is compiled from."""
    return precision if precision in ("int8", "fp8") else "float"


_UNMAPPED: dict[str, dict[str, str]] = {"inputs": {}, "outputs": {}}
"""Stands in every key of a chain, as the absent code does: keys of before stay as they are."""


def ensemble_key(
    spec: EnsembleSpec, step_keys: Mapping[str, str], dataset_digests: Mapping[str, str]
) -> str:
    """Return the key of an ensemble whose steps have these engine keys in an environment.

    Those hold runtime, compute capability and GPU. Endpoint, scaling and rollout change nothing.
    """
    inputs = {
        "recipe": RECIPE_VERSION,
        "name": spec.name,
        "engines": dict(step_keys),
        "steps": [{"model": step.model, **_UNMAPPED} for step in spec.steps],
        "outputs": list(spec.outputs),
        "example": spec.example,
        "bls": None,
        "accuracy": {
            **spec.accuracy.model_dump(mode="json", exclude={"dataset"}),
            "dataset": dataset_digests[spec.accuracy.dataset],
        },
        "max_batch_size": spec.serving.dynamic_batching.max_batch_size,
        "instances": spec.serving.instances_per_gpu,
    }
    return digest(inputs)


def repository_key(spec: RepositorySpec, platform: ServingPlatform, instance: InstanceType) -> str:
    """Return the key of a repository's archive on an instance type: its files, and what serves it.

    A folder is its digest, wherever it lies.
    """
    source = spec.repository
    place = {"folder"} if source.folder is not None and source.sha256 is not None else set()
    inputs = {
        "recipe": RECIPE_VERSION,
        "name": spec.name,
        REPOSITORY: source.model_dump(mode="json", exclude=place),
        "platform": platform.name,
        "compute_capability": instance.compute_capability,
    }
    return digest(inputs)


def _search(
    spec: ModelSpec, search: SensitivitySearchSpec, dataset_digests: Mapping[str, str]
) -> dict[str, Any]:
    # What stays in high precision follows from what the budget allows, and from what each layer
    # weighs at the opt shape.
    first = spec.engine.optimization_profiles[0]
    return {
        "dataset": dataset_digests[search.dataset],
        "samples": search.samples,
        **_confirmation(spec, dataset_digests),
        "opt_sequence": None if first.sequence is None else first.sequence[1],
    }


def _confirmation(spec: ModelSpec, dataset_digests: Mapping[str, str]) -> dict[str, Any]:
    # A choice of layers that these samples refuse is made anew.
    return {
        "accuracy_dataset": dataset_digests[spec.accuracy.dataset],
        **_accuracy_fields(spec.accuracy),
    }


def _accuracy_fields(accuracy: AccuracySpec) -> dict[str, Any]:
    # `outputs`, `neighbours` and `reference` are younger than their recipe: what is not there is
    # left out, so that no key of before changes.
    fields = {"metric", "budget", *(["outputs"] if accuracy.outputs else [])}
    left_out = {"budget": {"neighbours"}} if accuracy.budget.neighbours is None else None
    known: dict[str, Any] = accuracy.model_dump(mode="json", include=fields, exclude=left_out)
    reference = accuracy.reference
    return known if reference is None else known | {"reference": reference.sha256}


def _compiler(spec: ModelSpec) -> dict[str, Any]:
    options = {
        "workspace_mib",
        "optimization_level",
        "hardware_compatibility",
        "version_compatible",
    }
    fields = spec.engine.model_dump(mode="json", include=options)
    if spec.engine.precision not in ("fp32", "bf16"):
        fields["half_precision"] = HALF_PRECISION_VERSION
    # These two are younger than their recipe: defaults are left out, so that no key of before
    # changes.
    if spec.engine.sparsity != "disable":
        fields["sparsity"] = spec.engine.sparsity
    if spec.engine.plugins:
        # A library is its digest, wherever it lies; the archive carries it by its name.
        fields["plugins"] = [
            {"name": item.name, "sha256": item.sha256, "operators": sorted(item.operators)}
            for item in spec.engine.plugins
        ]
    return fields


def _packaged(serving: ServingSpec) -> dict[str, Any]:
    # `auto_truncate` is younger than its recipe: its default is left out, so that no key of before
    # changes. The runtime is a part of what is compiled.
    unsaid = {"server", "runtime", *(["auto_truncate"] if serving.auto_truncate else [])}
    fields = serving.model_dump(mode="json", exclude=unsaid | set(_PROCESSING))
    # A file is its digest, wherever it lies.
    own = serving.model_dump(
        mode="json", include=set(_PROCESSING), exclude=_PLACES, exclude_none=True
    )
    return fields | own


_PROCESSING = ("preprocessing", "postprocessing")
_PLACES: Any = {key: {"file"} for key in _PROCESSING}
_TEXT_SETTINGS = {"pooling", "prompts", "default_prompt_name"}
"""Keys of a source that are younger than their recipe: what is not given is left out."""


def _source(source: SourceSpec) -> dict[str, Any]:
    given = source.model_dump(mode="json", include=_TEXT_SETTINGS, exclude_none=True)
    # An ONNX file, or a checkpoint folder, is its digest, wherever it lies.
    if source.onnx is not None and source.sha256 is not None:
        return {"onnx": source.sha256} | given
    if source.checkpoint is not None and source.sha256 is not None:
        return {"checkpoint": source.sha256, "path": source.path} | given
    none_of_networks = {"checkpoint", "triton_repository", *_TEXT_SETTINGS}
    return source.model_dump(mode="json", exclude=none_of_networks) | given


def _longest_sequence(spec: ModelSpec) -> int | None:
    sequences = [
        profile.sequence[2]
        for profile in spec.engine.optimization_profiles
        if profile.sequence is not None
    ]
    return max(sequences, default=None)


def digest(inputs: Mapping[str, Any]) -> str:
    """Return the first 20 hex digits of the sha256 of inputs as canonical JSON."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

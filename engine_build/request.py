"""One build, resolved: what to make, of what, for which runtime.

Read from the onboarding tree and then never changed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from engine_build.datasets.dataset import Samples, Shape, samples
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.options import Options
from onboarding.fault import FaultsError
from onboarding.keys import network_precisions
from onboarding.manifest import RuntimeIdentity
from onboarding.model_spec import CalibrationSpec, ModelSpec, SensitivitySearchSpec
from onboarding.platform import ServingPlatform
from onboarding.resolve import quantization_mode, runtime_identity, target
from onboarding.tree import Tree, read_tree
from onboarding.values import QuantizationMode

ENOUGH_SAMPLES = 100
"""Fewer validation samples than this judge nothing."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What is built."""

    root: Path
    environment: str
    region: str
    model: ModelSpec
    platform: ServingPlatform
    compute_capability: str
    gpu: str | None
    """GPU model that the plan runs on alone; None for a CPU or a compatible plan."""
    runtime: RuntimeIdentity
    quantization: QuantizationMode
    engine_key: str
    network_keys: dict[str, str]
    calibration: Samples
    """What sets INT8 ranges; empty when no INT8 is tried."""
    search: Samples
    """What tells the cost of each layer in INT8; empty when no search is asked for."""
    validation: Samples
    validation_sha256: str

    @property
    def may_be_int8(self) -> bool:
        """True when INT8 is asked for, or may be chosen."""
        return "int8" in network_precisions(self.model)

    @property
    def is_cpu(self) -> bool:
        """True when ONNX Runtime is the engine."""
        return self.compute_capability == "cpu"

    @property
    def longest_sequence(self) -> int | None:
        """Most tokens of a row that any profile takes; None without a sequence axis."""
        profiles = self.model.engine.optimization_profiles
        return max((p.sequence[2] for p in profiles if p.sequence is not None), default=None)

    @property
    def opt_shape(self) -> Shape:
        """What the first profile is tuned for."""
        first = self.model.engine.optimization_profiles[0]
        return Shape(
            batch=first.batch[1], sequence=None if first.sequence is None else first.sequence[1]
        )

    @property
    def max_batch_size(self) -> int:
        """Rows of the largest batch that is served."""
        largest = self.model.serving.dynamic_batching.max_batch_size
        return (
            max(p.batch[2] for p in self.model.engine.optimization_profiles)
            if largest is None
            else largest
        )


def build_request(options: Options, log: Log) -> BuildRequest:
    """Reads the tree and resolves one build. Raises InputRefused."""
    tree = read_tree(options.root)
    try:
        deployment, wanted = target(
            _without_other_faults(tree, options, log),
            options.environment,
            options.model,
            options.compute_capability,
        )
    except FaultsError as error:
        raise InputRefused(_reason(error, log)) from error
    model, instance = wanted.model, wanted.instance_type
    calibration = model.engine.calibration if "int8" in network_precisions(model) else None
    result = BuildRequest(
        root=options.root,
        environment=deployment.environment.name,
        region=deployment.environment.region,
        model=model,
        platform=deployment.platform,
        compute_capability=instance.compute_capability,
        gpu=wanted.plan_gpu,
        runtime=runtime_identity(deployment.platform, instance),
        quantization=quantization_mode(model, deployment.platform),
        engine_key=wanted.engine_key,
        network_keys=wanted.network_keys,
        calibration=_first(options.root, calibration),
        search=_first(
            options.root, None if calibration is None else model.engine.sensitivity_search
        ),
        validation=samples(options.root / model.accuracy.dataset),
        validation_sha256=tree.dataset_digests[model.accuracy.dataset],
    )
    check_request(result)
    return result


def _without_other_faults(tree: Tree, options: Options, log: Log) -> Tree:
    """Return the tree without faults of files that this build does not read."""
    model = tree.models.get(options.model)
    if model is None or options.environment not in tree.environments:
        return tree
    read = {f"models/{options.model}.yaml", f"environments/{options.environment}.yaml"}
    if isinstance(model.endpoint, str):
        read.add(f"endpoints/{model.endpoint}.yaml")
    others = [
        fault
        for fault in tree.faults
        if fault.file not in read and fault.file.startswith(("models/", "endpoints/"))
    ]
    if not others:
        return tree
    log.line(f"{len(others)} faults of files that this build does not read, such as {others[0]}")
    faults = tuple(fault for fault in tree.faults if fault not in others)
    return dataclasses.replace(tree, faults=faults)


def check_request(request: BuildRequest) -> None:
    """Refuses what is known to fail before anything is fetched."""
    _check_source(request.model)
    accuracy, engine = request.model.accuracy, request.model.engine
    used = {
        "calibration": (engine.calibration, request.calibration),
        "search": (engine.sensitivity_search, request.search),
    }
    for use, (spec, found) in used.items():
        if spec is not None and request.may_be_int8:
            _check_count(use, spec, found)
            _check_overlap(use, spec.dataset, found, accuracy.dataset, request.validation)
    if engine.sensitivity_search is not None and engine.calibration is not None:
        searched = engine.sensitivity_search.dataset
        _check_overlap(
            "calibration", engine.calibration.dataset, request.calibration, searched, request.search
        )
    if engine.precision not in ("fp32", "auto") and len(request.validation) < ENOUGH_SAMPLES:
        raise InputRefused(
            f"accuracy dataset {accuracy.dataset} has {len(request.validation)} samples, too few "
            f"to judge {engine.precision}; give {ENOUGH_SAMPLES} or more, or ask for precision "
            "fp32."
        )


def _first(root: Path, spec: CalibrationSpec | SensitivitySearchSpec | None) -> Samples:
    return Samples() if spec is None else samples(root / spec.dataset).first(spec.samples)


def _check_source(model: ModelSpec) -> None:
    if model.task == "tensors" and model.source.onnx is None:
        raise InputRefused(
            f"task tensors of {model.name} needs an ONNX file; allowed: source.onnx with its "
            "sha256. Export the checkpoint, or name the task that it was trained for."
        )


def _check_count(use: str, spec: CalibrationSpec | SensitivitySearchSpec, found: Samples) -> None:
    if len(found) < spec.samples:
        raise InputRefused(
            f"{use} dataset {spec.dataset} has {len(found)} samples, but {spec.samples} are asked "
            "for; add samples, or lower `samples`."
        )


def _check_overlap(
    use: str, used: str, seen: Samples, accuracy_dataset: str, validation: Samples
) -> None:
    known = set(seen.identities())
    both = [
        sample
        for sample, identity in zip(validation.values, validation.identities(), strict=True)
        if identity in known
    ]
    if both:
        such = f", such as {both[0]!r}" if isinstance(both[0], str) else ""
        raise InputRefused(
            f"{len(both)} samples of dataset {accuracy_dataset} are in {use} dataset {used} "
            f"too{such}; judge on samples that {use} never saw."
        )


def _reason(error: FaultsError, log: Log) -> str:
    if len(error.faults) == 1:
        return str(error.faults[0])
    log.line(str(error))
    return f"{len(error.faults)} faults stand above, the first: {error.faults[0]}"

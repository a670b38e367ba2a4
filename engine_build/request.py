"""One build, resolved from the onboarding tree: what to make, of what, for which runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_build.datasets.dataset import Samples, Shape, samples
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.options import Options
from engine_build.store import Store
from engine_build.workload import Tools
from onboarding.deployment import Target
from onboarding.fault import FaultsError
from onboarding.manifest import RuntimeIdentity
from onboarding.model_spec import (
    CalibrationSpec,
    EnsembleSpec,
    ModelSpec,
    OptimizationProfileSpec,
    PluginSpec,
    RepositorySpec,
    SensitivitySearchSpec,
)
from onboarding.names import network_path
from onboarding.plan_source import PlanSource
from onboarding.platform import ServingPlatform
from onboarding.resolve import quantization_mode, runtime_identity, target
from onboarding.source_spec import SourceSecretsSpec
from onboarding.tree import Tree, read_tree
from onboarding.values import Precision, QuantizationMode, runtime_library

ENOUGH_SAMPLES = 100
"""Fewer validation samples than this judge nothing."""
CACHE_NAME = "calibration.cache"


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What is built."""

    root: Path
    region: str
    source_secrets: SourceSecretsSpec
    model: ModelSpec
    platform: ServingPlatform
    compute_capability: str
    gpu: str | None
    """GPU model that the plan runs on alone; None for a CPU or a compatible plan."""
    runtime: RuntimeIdentity
    quantization: QuantizationMode
    engine_key: str
    plan_key: str | None
    """Of what is compiled, whatever its packaging; None for an ensemble."""
    trusted_signers: tuple[str, ...]
    """Public keys of the environment, one of which must have signed a plan that is reused."""
    network_keys: dict[str, str]
    calibration: Samples
    """What sets INT8 and FP8 ranges; empty when neither is tried."""
    search: Samples
    """What tells the cost of each layer in INT8; empty when no search is asked for."""
    validation: Samples
    validation_sha256: str
    steps: tuple[Target, ...] = ()
    """The models of an ensemble, whose published engines its archive holds."""

    @property
    def may_be_int8(self) -> bool:
        """True when INT8 is asked for, or may be chosen."""
        return "int8" in self.network_keys

    @property
    def calibrates(self) -> bool:
        """True when calibration samples set the ranges of an INT8 or FP8 network."""
        return len(self.network_keys) > 1

    @property
    def int8_mode(self) -> QuantizationMode | None:
        """How INT8 is made; None when it is not tried."""
        return self.quantization if self.may_be_int8 else None

    @property
    def has_eight_bits(self) -> bool:
        """True where a build has a Q/DQ network."""
        return self.int8_mode == "explicit" or "fp8" in self.network_keys

    @property
    def half_precisions(self) -> tuple[Precision, ...]:
        """The precisions whose engines are compiled from networks in FP16."""
        if self.is_cpu or self.library == "pytorch":
            return ()
        made: dict[Precision, bool] = {
            "fp16": self.model.engine.precision in ("fp16", "auto"),
            "int8": self.int8_mode == "explicit",
            "fp8": "fp8" in self.network_keys,
        }
        return tuple(precision for precision, is_compiled in made.items() if is_compiled)

    @property
    def is_cpu(self) -> bool:
        """True when a CPU serves the engine."""
        return self.compute_capability == "cpu"

    @property
    def library(self) -> Literal["onnxruntime", "pytorch", "tensorrt"]:
        """What executes the engine: on the GPU of this machine a plan, on its CPU the others."""
        return runtime_library(self.runtime.name)

    @property
    def is_plan(self) -> bool:
        """True when a plan is compiled, on the GPU model that serves it."""
        return self.library == "tensorrt"

    def network_key(self, precision: str) -> str:
        """Return the key under which what belongs to a network is kept.

        Q/DQ nodes of the source are in its own network, whose key is the float one's.
        """
        return self.network_keys.get(precision, self.network_keys["float"])

    @property
    def cache_path(self) -> str:
        """Object key of the calibration cache: beside its `int8` network; every GPU shares it."""
        return network_path(self.network_keys["int8"], CACHE_NAME)

    @property
    def plugins(self) -> tuple[PluginSpec, ...]:
        """Libraries of custom operators; none where ONNX Runtime runs the operators' functions."""
        return self.model.engine.plugins if self.is_plan else ()

    @property
    def longest_sequence(self) -> int | None:
        """Most tokens of a row that any profile takes; None without a sequence axis."""
        profiles = self.model.engine.optimization_profiles
        return max((p.sequence[2] for p in profiles if p.sequence is not None), default=None)

    @property
    def opt_shape(self) -> Shape:
        """What the first profile is tuned for."""
        return profile_shape(self.model.engine.optimization_profiles[0], 1)

    @property
    def max_batch_size(self) -> int:
        """Rows of the largest batch that is served."""
        largest = self.model.serving.dynamic_batching.max_batch_size
        if largest is not None:
            return largest
        return max(profile.batch[2] for profile in self.model.engine.optimization_profiles)


def profile_shape(profile: OptimizationProfileSpec, size: int) -> Shape:
    """Return the shape of a profile at min (0), opt (1) or max (2)."""
    sequence = None if profile.sequence is None else profile.sequence[size]
    return Shape(batch=profile.batch[size], sequence=sequence)


def build_request(options: Options, log: Log) -> BuildRequest:
    """Read the tree and resolve one build. Raises InputRefused."""
    tree = read_tree(options.root)
    known = _without_other_faults(tree, options, log)
    try:
        deployment, engine = target(
            known, options.environment, options.model, options.compute_capability
        )
    except FaultsError as error:
        if len(error.faults) == 1:
            raise InputRefused(str(error.faults[0])) from error
        log.line(str(error))
        reason = f"{len(error.faults)} faults stand above, the first: {error.faults[0]}"
        raise InputRefused(reason) from error
    model, instance = engine.model, engine.instance_type
    calibration = model.engine.calibration if len(engine.network_keys) > 1 else None
    search = model.engine.sensitivity_search if "int8" in engine.network_keys else None
    paired = model.task == "text-ranking"
    request = BuildRequest(
        root=options.root,
        region=deployment.environment.region,
        source_secrets=deployment.environment.source_secrets,
        model=model,
        platform=deployment.platform,
        compute_capability=instance.compute_capability,
        gpu=engine.plan_gpu,
        runtime=runtime_identity(model, deployment.platform, instance),
        quantization=quantization_mode(model, deployment.platform),
        engine_key=engine.engine_key,
        plan_key=engine.plan_key,
        trusted_signers=deployment.environment.trusted_signers,
        network_keys=engine.network_keys,
        calibration=_first(options.root, calibration, paired=paired),
        search=_first(options.root, search, paired=paired),
        validation=Samples()
        if isinstance(model, RepositorySpec)
        else samples(options.root / model.accuracy.dataset, paired=paired),
        validation_sha256=tree.dataset_digests.get(model.accuracy.dataset, ""),
        steps=engine.steps,
    )
    if not isinstance(model, RepositorySpec):
        check_request(request)
    return request


def _without_other_faults(tree: Tree, options: Options, log: Log) -> Tree:
    """Return the tree without faults of files that this build does not read."""
    model = tree.models.get(options.model)
    if model is None or options.environment not in tree.environments:
        return tree
    read = {f"models/{options.model}.yaml", f"environments/{options.environment}.yaml"}
    # An ensemble's models, and the ensembles whose endpoint a model is built for.
    for name, spec in tree.models.items():
        if isinstance(spec, EnsembleSpec) and options.model in (name, *spec.models):
            read.update(f"models/{other}.yaml" for other in (name, *spec.models))
    if isinstance(model.endpoint, str):
        read.add(f"endpoints/{model.endpoint}.yaml")
    others = [
        fault
        for fault in tree.faults
        if fault.file.startswith(("models/", "endpoints/")) and fault.file not in read
    ]
    if others:
        count = len(others)
        log.line(f"{count} faults of files that this build does not read, such as {others[0]}")
    faults = tuple(fault for fault in tree.faults if fault not in others)
    return dataclasses.replace(tree, faults=faults)


def check_request(request: BuildRequest) -> None:
    """Refuse what is known to fail before anything is fetched. Raises InputRefused."""
    model = request.model
    accuracy, engine = model.accuracy, model.engine
    rows = (
        ("calibration", engine.calibration, request.calibration),
        ("search", engine.sensitivity_search, request.search),
    )
    for use, spec, dataset in rows:
        if spec is None or not request.calibrates:
            continue
        _check_overlap(use, spec.dataset, dataset, accuracy.dataset, request.validation)
    calibration, search = engine.calibration, engine.sensitivity_search
    if search is not None and calibration is not None:
        _check_overlap(
            "calibration", calibration.dataset, request.calibration, search.dataset, request.search
        )
    count = len(request.validation)
    if engine.precision not in ("fp32", "auto") and count < ENOUGH_SAMPLES:
        raise InputRefused(
            f"accuracy dataset {accuracy.dataset} has {count} samples, too few to judge "
            f"{engine.precision}; give {ENOUGH_SAMPLES} or more, or ask for precision fp32."
        )


def _first(
    root: Path, spec: CalibrationSpec | SensitivitySearchSpec | None, *, paired: bool
) -> Samples:
    if spec is None:
        return Samples()
    return samples(root / spec.dataset, paired=paired).first(spec.samples)


def _check_overlap(
    use: str, dataset: str, seen: Samples, unseen_dataset: str, unseen: Samples
) -> None:
    known = set(seen.identities())
    rows = zip(unseen.values, unseen.identities(), strict=True)
    both = [sample for sample, identity in rows if identity in known]
    if both:
        such = f", such as {both[0]!r}" if isinstance(both[0], str | tuple) else ""
        raise InputRefused(
            f"{len(both)} samples of dataset {unseen_dataset} are in {use} dataset {dataset} "
            f"too{such}; judge on samples that {use} never saw."
        )


def plugin_path(plugin: PluginSpec) -> str:
    """Return where the work folder keeps a library of custom operators."""
    return f"plugins/{plugin.sha256}/{plugin.name}"


@dataclass(frozen=True, kw_only=True)
class BuildContext(Tools):
    """The tools of one engine's build."""

    request: BuildRequest
    code_root: Path
    """The source tree that `container/` lies in."""
    now: Callable[[], str]
    """The time in ISO 8601, UTC."""
    plan_source: PlanSource | None = None
    """The engine whose plan is packaged; None: one is compiled."""

    @property
    def stores(self) -> tuple[Store, ...]:
        """Where finished parts are looked for, the nearest first."""
        return (self.work.store,) if self.publish_to is None else (self.work.store, self.publish_to)

    @property
    def destination(self) -> Store:
        """Where the engine lies in the end."""
        return self.work.store if self.publish_to is None else self.publish_to

    @property
    def plugins(self) -> tuple[Path, ...]:
        """Where the fetch step keeps the libraries of custom operators."""
        return tuple(map(self.work.store.path, map(plugin_path, self.request.plugins)))

"""The steps of an ensemble's build, which compiles nothing: collect, verify, benchmark, package.

The archives of its models are published, by builds of their own; their plans are copied as they
are. What is compared is the whole: errors of one model grow or vanish in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from engine_build.datasets.dataset import Array, Shape
from engine_build.errors import BudgetMissed, InputRefused
from engine_build.evaluation.accuracy import OutputStandard, Standard, accuracy
from engine_build.evaluation.latency import (
    Engine,
    Track,
    format_latencies,
    measure_latencies,
    summaries,
)
from engine_build.onnx_graph.network_store import Network
from engine_build.packaging.archive import EngineArchive, known_engine, read_engine_archive
from engine_build.packaging.ensemble import Ensemble, ensemble_of
from engine_build.request import BuildContext
from engine_build.steps.ensemble_models import (
    Tensors,
    batches,
    ensemble_models,
    example_request,
    request_tensors,
)
from engine_build.steps.package import builder_record, keep_archive
from engine_build.steps.step import BuildState
from engine_build.store import sha256_of
from onboarding.deployment import Target
from onboarding.manifest import AccuracyRecord, Manifest, ProfileRecord, TensorRecord
from onboarding.model_spec import EnsembleSpec
from onboarding.names import engine_archive_path
from onboarding.values import ServedPrecision

LOWEST_FIRST: tuple[ServedPrecision, ...] = ("int8", "fp8", "fp16", "bf16", "fp32")


def collect(context: BuildContext, state: BuildState) -> None:
    """Fetch the models' published archives and float networks. Raises InputRefused."""
    request, spec = context.request, context.request.model
    assert isinstance(spec, EnsembleSpec)
    names = ", ".join(step.model.name for step in request.steps)
    with context.log.step("collect", f"published engines of {names}"):
        archives = {step.model.name: _archive(context, step) for step in request.steps}
        state.ensemble = ensemble_of(spec, archives)
        for step in request.steps:
            state.networks[step.model.name] = _network(context, state, step)


def verify(context: BuildContext, state: BuildState) -> None:
    """Compare the engines, one after the other, with their float networks. Raises BudgetMissed."""
    request, ensemble = context.request, state.ensemble
    samples = request.validation.values
    intent = f"{len(samples)} samples through the engines, and through their float networks"
    with context.log.step("verify", intent):
        with ensemble_models(context, state, is_float=False) as engine:
            if (example := example_request(ensemble)) is not None:
                engine(example)
                context.log.line("  the example that health requests send is answered")
            answers = [engine(batch) for batch in batches(ensemble, samples)]
        with ensemble_models(context, state, is_float=True) as float_network:
            references = [float_network(batch) for batch in batches(ensemble, samples)]
        record = _accuracy_record(context, ensemble, answers, references)
        context.log.line(
            f"  {record.metric} mean {record.mean:.6f}, worst {record.worst:.6f}: {record.verdict}"
        )
        state.accuracy = record


def benchmark(context: BuildContext, state: BuildState) -> None:
    """Time the engines one after the other, without Triton, as other engines are timed."""
    samples = context.request.validation.values
    profile = _profile(state.ensemble)
    shapes = [Shape(batch=size) for size in dict.fromkeys(profile.batch)]
    with (
        context.log.step("benchmark", f"the models one after the other, {len(shapes)} shapes"),
        ensemble_models(context, state, is_float=False) as answer,
    ):
        engine = Engine(
            runtime=context.request.runtime.name,
            precision=_precision(state.ensemble),
            run=answer,
        )
        tracks = [
            Track(
                shape=shape,
                feed=request_tensors(
                    state.ensemble, [samples[row % len(samples)] for row in range(shape.batch)]
                ),
            )
            for shape in shapes
        ]
        measured = measure_latencies([engine], tracks, seconds=context.settings.benchmark_seconds)
        state.benchmark = summaries([engine], measured)
        context.log.line(format_latencies(state.benchmark))


def package(context: BuildContext, state: BuildState) -> None:
    """Write the archive and, last, the record into the work folder. Raises InputRefused."""
    request, ensemble = context.request, state.ensemble
    intent = f"model repository of {request.model.name}, manifest, deterministic tar.gz"
    with context.log.step("package", intent):
        files = ensemble.files((request.root, context.code_root))
        keep_archive(context, state, files, _fields(context, state))


def _archive(context: BuildContext, step: Target) -> EngineArchive:
    """Return a step's published archive, unpacked and checked. Raises InputRefused."""
    name, key = step.model.name, step.engine_key
    folder = context.work.scratch(f"step-{name}")
    for store in context.stores:
        entry = known_engine(store, key)
        packed = folder / "model.tar.gz"
        if entry is None or not store.download(engine_archive_path(key), packed):
            continue
        if sha256_of(packed) == entry.archive.sha256:
            return read_engine_archive(packed, folder / "archive")
    raise InputRefused(
        f"engine {key} of {name} is not in {context.destination.place}, and ensemble "
        f"{context.request.model.name} copies it; build {name} first (`roundhouse build` without "
        "--model builds both, one after the other)."
    )


def _network(context: BuildContext, state: BuildState, step: Target) -> Network:
    name, key = step.model.name, step.network_keys["float"]
    if step.model.task == "token-classification":
        raise InputRefused(
            f"{name} answers each token of a text, so the answers of {context.request.model.name} "
            "have no fixed size to be compared by; give it an endpoint of its own."
        )
    network = state.network_store.find("float", key)
    if network is None:
        raise InputRefused(
            f"network {key} of {name}, which ensemble {context.request.model.name} is compared "
            f"against, is not in {context.destination.place}; build {name} again."
        )
    return network


def _accuracy_record(
    context: BuildContext,
    ensemble: Ensemble,
    answers: Sequence[Tensors],
    references: Sequence[Tensors],
) -> AccuracyRecord:
    spec, records = ensemble.spec.accuracy, ensemble.outputs
    compared = [record for record in records if record.datatype not in ("BYTES", "BOOL")]
    for record in records:
        if record not in compared:
            context.log.line(f"  {record.name} is {record.datatype}, which no metric compares")
    if not compared:
        raise InputRefused(
            f"models/{ensemble.spec.name}.yaml: no output is of numbers, so nothing can be judged; "
            "add one, such as scores."
        )
    sizes = [prod(references[0][record.name].shape[1:]) for record in compared]
    outputs = tuple(
        OutputStandard(name=record.name, size=size, metric=spec.metric, budget=spec.budget)
        for record, size in zip(compared, sizes, strict=True)
    )
    standard = Standard(
        reference=_rows(references, compared),
        metric=spec.metric,
        budget=spec.budget,
        outputs=outputs if len(outputs) > 1 else (),
    )
    subject = f"{ensemble.spec.name}, {len(ensemble.archives)} models"
    result = accuracy(subject, _rows(answers, compared), standard)
    is_float = all(item.manifest.precision == "fp32" for item in ensemble.archives.values())
    if result.verdict == "fail" or (result.verdict != "pass" and not is_float):
        raise BudgetMissed(
            f"{ensemble.spec.name}: {result.metric} mean {result.mean:g}, worst {result.worst:g} "
            f"of {result.samples} samples against the models' float networks, budget mean "
            f"{result.budget_mean:g}: {result.verdict}; give a model of it another precision, more "
            "samples, or the ensemble another budget."
        )
    return result


def _rows(answers: Sequence[Tensors], records: Sequence[TensorRecord]) -> Array:
    """Return float32 [samples, values], outputs side by side. Raises InputRefused."""
    columns = []
    for record in records:
        parts = [answer[record.name] for answer in answers]
        if len({part.shape[1:] for part in parts}) > 1:
            raise InputRefused(
                f"output {record.name} has other sizes for other samples, so it cannot be judged; "
                "give samples of one size."
            )
        columns.append(np.concatenate([part.reshape(len(part), -1) for part in parts]))
    beside: Array = np.concatenate([column.astype(np.float32) for column in columns], axis=1)
    return beside


def _fields(context: BuildContext, state: BuildState) -> dict[str, Any]:
    """Return the manifest but for its files."""
    request, ensemble = context.request, state.ensemble
    manifests = {name: archive.manifest for name, archive in ensemble.archives.items()}
    listing = ", ".join(f"{name} {manifest.precision}" for name, manifest in manifests.items())
    plugins = dict.fromkeys(name for item in manifests.values() for name in item.plugins)
    return {
        "model": request.model.name,
        "task": request.model.task,
        "gpu": request.gpu,
        "inputs": ensemble.inputs,
        "outputs": ensemble.outputs,
        "optimization_profiles": (_profile(ensemble),),
        "max_batch_size": ensemble.max_batch_size,
        "ensemble": ensemble.record,
        "plugins": tuple(plugins),
        "network_keys": {},
        "requested_precision": request.model.engine.precision,
        "precision": _precision(ensemble),
        "decision": f"the models' engines as they were published: {listing}",
        "engine_file": ensemble.configuration_file,
        "accuracy": (state.accuracy,),
        "compile_checks": (),
        "benchmark": state.benchmark,
        "builder": builder_record(context),
        **_sums(tuple(manifests.values())),
    }


def _precision(ensemble: Ensemble) -> ServedPrecision:
    """Return the lowest of the models'."""
    precisions = {archive.manifest.precision for archive in ensemble.archives.values()}
    return min(precisions, key=LOWEST_FIRST.index)


def _profile(ensemble: Ensemble) -> ProfileRecord:
    """Return the rows that are served: what suits every model, up to the smallest largest batch."""
    most = ensemble.max_batch_size
    opts = [
        profile.batch[1]
        for archive in ensemble.archives.values()
        for profile in archive.manifest.optimization_profiles[:1]
    ]
    return ProfileRecord(batch=(1, min(*opts, most), most))


def _sums(manifests: Sequence[Manifest]) -> dict[str, float | None]:
    device = [item.device_memory_mib for item in manifests if item.device_memory_mib is not None]
    return {
        "load_seconds": sum(item.load_seconds for item in manifests),
        "host_memory_mib": sum(item.host_memory_mib for item in manifests),
        "device_memory_mib": sum(device) if len(device) == len(manifests) else None,
    }

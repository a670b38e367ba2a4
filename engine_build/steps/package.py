"""The step that turns the chosen engine into an archive with its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_build import machine
from engine_build.evaluation.decision import Candidate
from engine_build.onnx_graph.network_store import Network
from engine_build.packaging.archive import (
    archive,
    model_repository,
    publish_record,
    repackaged_path,
)
from engine_build.packaging.repository import repository
from engine_build.packaging.reused_plan import ReusedPlan
from engine_build.packaging.served import Served
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext, BuildRequest
from engine_build.runner import Command
from engine_build.steps.compile import integer_layers
from engine_build.steps.reference import reference_note
from engine_build.steps.step import BuildState
from engine_build.tensorrt.trtexec import gpu_host
from onboarding.manifest import (
    BuilderRecord,
    Manifest,
    ProfileRecord,
    QuantizationRecord,
    RepackagingRecord,
)
from onboarding.names import engine_archive_path
from onboarding.plan_source import plan_key_path, plan_key_text
from onboarding.values import EXPORT_OPSET

DIRTY = "-dirty"
"""What follows a commit whose working tree had changes, as in `git describe --dirty`."""

MEASURED = ("accuracy", "benchmark", "speedups", "runtimes")
FOOTPRINT = ("load_seconds", "host_memory_mib", "device_memory_mib")
OF_THE_PLAN = (
    *("precision", "decision", "opset", "reference", "left_out", "quantization", "plan"),
    *("compile_checks", "builder", *MEASURED, *FOOTPRINT),
)
"""Fields of a manifest that no packaging changes."""
AS_SERVED = (
    *("model", "task", "max_batch_size", "prompts", "activation"),
    *("preprocessing", "postprocessing", "image_processor"),
)
"""Fields of a manifest that Served has by the same name."""


def run(context: BuildContext, state: BuildState) -> None:
    """Write the archive and, last, the record into the work folder. Raises InputRefused."""
    request, network = context.request, state.networks["float"]
    intent = f"model repository of {request.model.name}, manifest, deterministic tar.gz"
    with context.log.step("package", intent):
        served = served_engine(request, network)
        laid = repository(
            served,
            state.evaluation.chosen.path if state.reused is None else state.reused.engine,
            network.tokenizer,
            runtime=request.runtime.name,
            code_roots=(request.root, context.code_root),
        )
        # Beside the manifest, where Triton looks for no model.
        plugins: dict[str, Path | str] = {path.name: path for path in context.plugins}
        fields = {
            "plugins": tuple(plugins),
            "engine_file": laid.engine_file,
            "tokenizer_file": laid.tokenizer_file,
            "labels": network.labels,
            "inputs": served.client_inputs,
            "outputs": served.client_outputs,
            "optimization_profiles": served.profiles,
            "warm_up": served.serving.warm_up,
            "auto_truncate": served.serving.auto_truncate,
            **{name: getattr(served, name) for name in AS_SERVED},
            "network_keys": request.network_keys,
            "gpu": request.gpu,
            "requested_precision": request.model.engine.precision,
        }
        if state.reused is None:
            fields |= _measured_fields(context, state)
        else:
            plan = state.reused.manifest
            # The quantized network is the plan's own.
            own = {"float": request.network_keys["float"]}
            fields["network_keys"] = {**request.network_keys, **plan.network_keys, **own}
            fields |= {name: getattr(plan, name) for name in OF_THE_PLAN}
        of_plan = _plan_files(context, state.reused, laid.engine_file)
        keep_archive(context, state, {**laid.files, **plugins, **of_plan}, fields)


def keep_archive(
    context: BuildContext,
    state: BuildState,
    files: Mapping[str, Path | str],
    fields: Mapping[str, Any],
) -> None:
    """Write an archive of these files and, last, its record into the work folder.

    `fields` are the manifest's, but for `files`, the engine's key, and what it is built for.
    """
    request, store = context.request, context.work.store
    folder = context.work.scratch("archive")
    manifest = Manifest(
        files=model_repository(folder, files),
        engine_key=request.engine_key,
        platform=request.platform.name,
        runtime=request.runtime,
        compute_capability=request.compute_capability,
        **fields,
    )
    packed = context.work.scratch("packed") / "model.tar.gz"
    entry = archive(folder, manifest, packed, request.plan_key)
    store.upload(packed, engine_archive_path(request.engine_key))
    publish_record(store, entry, packed.parent)
    context.log.line(f"  {entry.archive.size_bytes / 1e6:.1f} MB, sha256 {entry.archive.sha256}")
    state.entry = entry


def served_engine(request: BuildRequest, network: Network) -> Served:
    """Return the engine of a request as clients see it."""
    return Served(
        model=request.model.name,
        task=request.model.task,
        inputs=network.inputs,
        outputs=network.outputs,
        profiles=tuple(
            ProfileRecord(batch=profile.batch, sequence=profile.sequence)
            for profile in request.model.engine.optimization_profiles
        ),
        max_batch_size=request.max_batch_size,
        serving=request.model.serving,
        prompts=network.prompts,
        activation=network.facts.get("activation"),
        image_processor=network.image_processor,
    )


def _plan_files(
    context: BuildContext, reused: ReusedPlan | None, engine_file: str
) -> dict[str, str]:
    """Return what lies beside an engine file: its plan's key, and where a reused plan came from."""
    assert context.request.plan_key is not None
    files = {plan_key_path(engine_file): plan_key_text(context.request.plan_key)}
    if reused is not None:
        record = RepackagingRecord(
            engine_key=reused.manifest.engine_key,
            archive_sha256=reused.sha256,
            builder=builder_record(context, has_gpu=False),
        )
        files[repackaged_path(engine_file)] = record.model_dump_json(indent=2) + "\n"
    return files


def _measured_fields(context: BuildContext, state: BuildState) -> dict[str, Any]:
    """Return what was measured, and by whom: the fields of OF_THE_PLAN."""
    request, evaluation = context.request, state.evaluation
    engine = request.model.engine
    return {
        "precision": evaluation.chosen.precision,
        "decision": evaluation.decision.sentence,
        "opset": None if engine.opset == EXPORT_OPSET else engine.opset,
        "reference": reference_note(request, given_precision(state.networks)),
        "left_out": dict(evaluation.left_out),
        "quantization": quantization(
            request,
            state.networks.get(evaluation.chosen.precision, state.networks.get("int8")),
            evaluation.chosen,
        ),
        "plan": evaluation.chosen.plan,
        "compile_checks": state.checks,
        "builder": builder_record(context),
        **{name: getattr(evaluation, name) for name in MEASURED},
        **{name: getattr(evaluation.footprint, name) for name in FOOTPRINT},
    }


def quantization(
    request: BuildRequest, network: Network | None, chosen: Candidate
) -> QuantizationRecord | None:
    """Return how INT8 was made; None when it was not.

    The facts that its network was kept with tell it, the calibration cache, or on a CPU the engine
    itself.
    """
    if network is not None:
        facts = network.facts
        return QuantizationRecord(
            mode=facts.get("mode", request.quantization),
            precision=facts.get("precision", "int8"),
            method=facts.get("method"),
            samples=facts.get("samples"),
            int8_share_of_matmul_macs=facts["int8_share_of_matmul_macs"],
            share_at_sequence=facts.get("share_at_sequence"),
            int8_layers=facts["int8_layers"],
            float_layers=tuple(facts["float_layers"]),
        )
    spec = request.model.engine.calibration
    if spec is not None and request.int8_mode == "calibration-cache":
        return QuantizationRecord(mode=request.int8_mode, method=spec.method, samples=spec.samples)
    if request.is_cpu and chosen.precision == "int8":
        return QuantizationRecord(mode="dynamic", int8_layers=integer_layers(chosen.path))
    return None


def builder_record(context: BuildContext, *, has_gpu: bool = True) -> BuilderRecord:
    """Return the machine and software of this build; a plan is packaged without a GPU too."""
    settings = context.settings
    host = gpu_host(context.runner) if has_gpu and context.request.is_plan else None
    return BuilderRecord(
        machine=machine.description(),
        gpu=None if host is None else host.gpu,
        driver=None if host is None else host.driver,
        image=settings.image,
        source_commit=source_commit(context),
        built_at=context.now(),
        seconds=round(sum(context.log.seconds.values()), 1),
    )


def source_commit(context: BuildContext) -> str | None:
    """Return the commit that is built, marked -dirty where the working tree differs from it.

    Locks do not count: builds write them. A tree without .git is what its sender says.
    """
    given, root = context.settings.source_commit, context.request.root
    if not (root / ".git").exists() or context.runner.find("git") is None:
        return given
    git = ("git", "-C", str(root))
    head = context.runner.run(Command(argv=(*git, "rev-parse", "HEAD")))
    changes = context.runner.run(
        Command(argv=(*git, "status", "--porcelain", "--", ".", ":!*.lock.yaml"))
    )
    if head.code != 0 or changes.code != 0:
        return given
    commit = head.output.strip() if given is None else given
    is_marked = commit.endswith(DIRTY) or not changes.output.strip()
    return commit if is_marked else f"{commit}{DIRTY}"

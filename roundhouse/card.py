"""`roundhouse status MODEL --card`: an engine's precisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onboarding.deployment import Target
    from onboarding.manifest import Manifest
    from roundhouse.paths import Paths
    from roundhouse.report import Report
    from roundhouse.session import Session

PRECISIONS = ("fp32", "fp16", "int8", "fp8")
COLUMNS = (
    *("precision", "state", "engine file", "weights", "device memory", "host memory"),
    *("median latency", "rows/s", "accuracy, mean", "worst", "verdict", "reason"),
)
WORDS = ("precision", "state", "verdict", "reason")
"""Columns that are no numbers."""
NOT_RECORDED = "the build kept no record of it"


def show_card(paths: Paths, report: Report, env: str, model: str) -> None:
    """Print the precisions of an engine, as its lock has them.

    Raises RoundhouseError, of a text generator too.
    """
    from roundhouse.errors import RoundhouseError
    from roundhouse.measure.subject import is_generator
    from roundhouse.session import open_session
    from roundhouse.table import table

    if is_generator(paths, model):
        raise RoundhouseError(
            f"{model}: is a text generator, and engines alone have a card; `roundhouse status "
            f"--env {env}` shows its checkpoints, and its lock has the numbers of their gates."
        )
    manifest = built_manifest(open_session(paths, report, env), model)
    right = [column for column in COLUMNS if column not in WORDS]
    report.print_table(table(COLUMNS, precision_rows(manifest), right=right))
    report.print(f"{manifest.decision} models/{model}.lock.yaml has all that was measured.")


def built_manifest(session: Session, model: str) -> Manifest:
    """Return the manifest of a model's engine. Raises RoundhouseError where there is none."""
    from roundhouse.errors import RoundhouseError

    target = _target(session, model)
    if target.lock_entry is None:
        build = f"`roundhouse build --env {session.environment.name} --model {model}`"
        raise RoundhouseError(f"{model}: its engine is not built; {build} builds it.")
    return target.lock_entry.manifest


def precision_rows(manifest: Manifest) -> list[list[str]]:
    """Return the cells of FP32, FP16, INT8 and FP8, and others that were measured.

    Latency is that of the first profile's opt shape; nothing is estimated.
    """
    names = dict.fromkeys((*PRECISIONS, *manifest.left_out, manifest.precision))
    return [_cells(manifest, name) for name in names]


def _cells(manifest: Manifest, name: str) -> list[str]:
    from onboarding.values import runtime_library
    from roundhouse.figures import DASH, milliseconds, per_second, size

    runtime = runtime_library(manifest.runtime.name)
    profile = next(iter(manifest.optimization_profiles), None)
    opt = None if profile is None else (profile.batch[1], (profile.sequence or (None,) * 3)[1])
    own = [item for item in manifest.runtimes if (item.runtime, item.precision) == (runtime, name)]
    speed = [
        item
        for item in manifest.benchmark
        if (item.runtime, item.precision, (item.batch, item.sequence)) == (runtime, name, opt)
    ]
    scores = [item for item in manifest.accuracy_records if item.subject == f"{name} engine"]
    is_measured = bool(own or speed or scores)
    state = "measured" if is_measured else "not tried, or refused"
    memory, timed, score = next(iter(own), None), next(iter(speed), None), next(iter(scores), None)

    def mebibytes(field: str) -> str:
        value = getattr(memory, field, None)
        return DASH if value is None else f"{value:,.{0 if value >= 10 else 1}f} MiB"

    left_out = {str(precision): reason for precision, reason in manifest.left_out.items()}
    return [
        name.upper(),
        "published" if name == manifest.precision else state,
        size(getattr(memory, "engine_bytes", None)),
        size(getattr(memory, "weights_bytes", None)),
        mebibytes("device_memory_mib"),
        mebibytes("host_memory_mib"),
        milliseconds(getattr(timed, "p50_ms", None)),
        per_second(getattr(timed, "rows_per_second", None)),
        DASH if score is None else f"{score.mean:.5f}",
        DASH if score is None else f"{score.worst:.5f}",
        DASH if score is None else score.verdict,
        "" if is_measured else left_out.get(name, NOT_RECORDED),
    ]


def _target(session: Session, model: str) -> Target:
    from roundhouse.errors import RoundhouseError
    from roundhouse.text import choices

    targets = {
        target.model.name: target
        for deployment in session.deployments()
        for target in deployment.built_targets
    }
    if model not in targets:
        known = choices(model, sorted(targets))
        raise RoundhouseError(
            f"{model!r}: no such model in environment {session.environment.name}; {known}"
        )
    return targets[model]

"""Builds one tiny engine a build route, signed, and reads their records."""

from __future__ import annotations

from onboarding.lock import LockEntry, read_lock
from onboarding.names import build_machine, builder_project
from onboarding.values import is_same_build
from roundhouse.acceptance.assumptions import Assumption, Place
from roundhouse.acceptance.setup import Setup, TinyModel
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep, no_builder
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import EnginesNotBuiltError

BUILT = "built, signed"


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that each model is built on its route, and its plan is what was requested."""
    return tuple(row for model in setup.models for row in _of_model(setup, model))


def _of_model(setup: Setup, model: TinyModel) -> tuple[Assumption, ...]:
    kind = "version-compatible " if model.version_compatible else ""
    mode = "" if model.quantization is None else f" by {model.quantization}"
    built = Assumption(
        name=f"engines.{model.name}",
        says=f"route {model.route} builds the {kind}{model.precision} engine{mode} for "
        f"{model.instance_type.name}",
        expected=BUILT,
    )
    plan = Assumption(
        name=f"engines.{model.name}-plan",
        says="the plan, read back, is of the platform's TensorRT and has layers",
        expected=f"TensorRT {setup.platform.tensorrt}",
        place=Place.gpu,
    )
    int8 = Assumption(
        name=f"engines.{model.name}-int8",
        says="layers of the INT8 plan compute in INT8",
        expected="at least 1",
        place=Place.gpu,
    )
    if not setup.has_gpu:
        return (built,)
    return (built, plan, int8) if model.precision == "int8" else (built, plan)


def created(setup: Setup) -> tuple[str, ...]:
    """Return what runs while engines are built."""
    environment = setup.environment
    return (
        f"executions of {build_machine(environment)}",
        *(f"builds of {builder_project(environment, model.route)}" for model in setup.models),
    )


def run(context: AcceptanceContext) -> str:
    """Build every engine at once and record each; one that fails leaves the others."""
    session = context.session
    failures: dict[str, str] = {}
    try:
        engines.build_all(session, engines.missing_engines(session), allow_dirty=True)
    except EnginesNotBuiltError as error:
        failures = {failure.model: failure.reason for failure in error.failures}
        context.evidence.write_json("engines-failed.json", [f.as_dict() for f in error.failures])
    locks = session.paths.tree / session.environment.locks
    for model in context.setup.models:
        entries = tuple(read_lock(locks, model.name).engines.values())
        if entries:
            _record(context, model, entries[0])
        else:
            reason = failures.get(model.name, "no record of it")
            context.findings.record(f"engines.{model.name}", f"not built: {reason}")
    return f"{len(context.built)} of {len(context.setup.models)} built"


def _record(context: AcceptanceContext, model: TinyModel, entry: LockEntry) -> None:
    context.built.add(model.name)
    document = entry.model_dump(mode="json", exclude_none=True)
    context.evidence.write_json(f"engines/{model.name}.json", document)
    found = BUILT if entry.signature is not None else "built, not signed"
    context.findings.record(f"engines.{model.name}", found)
    plan = entry.manifest.plan
    if not context.setup.has_gpu:
        return
    name = f"engines.{model.name}-plan"
    if plan is None:
        context.findings.record(name, "the manifest has no plan", holds=False)
        return
    platform = str(context.setup.platform.tensorrt)
    is_same = is_same_build(platform, plan.tensorrt) and plan.layers > 0
    found = f"TensorRT {plan.tensorrt}, {plan.layers} layers"
    context.findings.record(name, found, holds=is_same)
    if model.precision == "int8":
        has_int8 = plan.int8_layers > 0
        name = f"engines.{model.name}-int8"
        context.findings.record(name, f"{plan.int8_layers} of {plan.layers}", holds=has_int8)


ENGINES = AcceptanceStep(
    name="engines",
    title="Building one tiny engine a route",
    limit_minutes=45,
    assumptions=assumptions,
    run=run,
    obstacle=no_builder,
    creates=created,
)

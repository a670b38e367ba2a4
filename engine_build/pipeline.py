"""The steps of a build, in order: what is printed before a build is this very list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine_build.packaging.reused_plan import ReusedPlan
from engine_build.request import BuildContext
from engine_build.steps import (
    benchmark,
    calibrate,
    check,
    compile,
    ensemble,
    export,
    fetch,
    half_precision,
    package,
    placement,
    processing,
    publish,
    quantize,
    reference,
    triton_repository,
    verify,
)
from engine_build.steps.step import BuildState
from onboarding.lock import LockEntry


@dataclass(frozen=True, kw_only=True)
class Step:
    """A named part of a build: `run` does it, `applies` tells whether a build has it."""

    name: str
    run: Callable[[BuildContext, BuildState], None]
    applies: Callable[[BuildContext], bool] = lambda context: True


FETCH = Step(name="fetch", run=fetch.run)
LOAD = Step(
    name="load", run=fetch.load, applies=lambda context: context.request.model.source.onnx is None
)
EXPORT = Step(name="export", run=export.run)
PROCESSING = Step(
    name="processing",
    run=processing.run,
    applies=lambda context: (
        context.request.model.serving.preprocessing is not None
        or context.request.model.serving.postprocessing is not None
    ),
)
REFERENCE = Step(name="reference", run=reference.run)
QUANTIZE = Step(
    name="quantize", run=quantize.run, applies=lambda context: context.request.has_eight_bits
)
QUANTIZE_FOR_ENGINE = Step(
    name="quantize",
    run=quantize.run,
    # A CPU's INT8 engine is made of the float network, and needs no other.
    applies=lambda context: (
        context.request.has_eight_bits
        and not (context.request.is_cpu and context.request.may_be_int8)
    ),
)
HALF_PRECISION = Step(
    name="half precision",
    run=half_precision.run,
    applies=lambda context: bool(context.request.half_precisions),
)
CALIBRATE = Step(
    name="calibrate",
    run=calibrate.run,
    applies=lambda context: context.request.int8_mode == "calibration-cache",
)
CHECK = Step(
    name="check", run=check.run, applies=lambda context: context.request.library != "pytorch"
)
COMPILE = Step(name="compile", run=compile.run)
PLACEMENT = Step(
    name="placement",
    run=placement.place_layers,
    applies=lambda context: context.request.is_plan and context.request.has_eight_bits,
)
VERIFY = Step(name="verify", run=verify.verify_candidates)
BENCHMARK = Step(name="benchmark", run=benchmark.choose_candidate)
PACKAGE = Step(name="package", run=package.run)
PUBLISH = Step(
    name="publish", run=publish.run, applies=lambda context: context.publish_to is not None
)

FLOAT_STEPS = (FETCH, LOAD, EXPORT, PROCESSING, REFERENCE)
NETWORK_STEPS = (*FLOAT_STEPS, QUANTIZE, HALF_PRECISION, CALIBRATE)
"""The steps on the CPU, whose networks every GPU shares."""
STEPS = (
    *(*FLOAT_STEPS, QUANTIZE_FOR_ENGINE, HALF_PRECISION, CALIBRATE),
    *(CHECK, COMPILE, PLACEMENT, VERIFY, BENCHMARK, PACKAGE, PUBLISH),
)
"""Every step of an engine."""
STEPS_OF_PACKAGING = (FETCH, LOAD, EXPORT, PROCESSING, PACKAGE, PUBLISH)
"""Every step of an engine whose plan is reused: no GPU compiles, judges or times anything."""
STEPS_OF_NETWORKS = (*NETWORK_STEPS, CHECK, replace(PUBLISH, run=publish.run_networks))
"""Every step of `--networks-only`."""
STEPS_OF_ENSEMBLES = (
    Step(name="collect", run=ensemble.collect),
    Step(name="verify", run=ensemble.verify),
    Step(name="benchmark", run=ensemble.benchmark),
    Step(name="package", run=ensemble.package),
    PUBLISH,
)
"""Every step of an archive that holds other models' engines."""
STEPS_OF_REPOSITORIES = (
    Step(name="fetch", run=triton_repository.fetch),
    Step(name="package", run=triton_repository.package),
    PUBLISH,
)
"""Every step of a Triton repository of the user's own."""


def steps_of(context: BuildContext, steps: Sequence[Step] | None = None) -> list[Step]:
    """Return those of some steps that a build has; default: of the steps of its engine."""
    if steps is None and context.request.plan_key is not None:
        steps = STEPS
    elif steps is None:
        steps = STEPS_OF_ENSEMBLES if context.request.steps else STEPS_OF_REPOSITORIES
    return [step for step in steps if step.applies(context)]


def run_steps(
    context: BuildContext, steps: Sequence[Step], reused: ReusedPlan | None = None
) -> BuildState:
    """Run the steps of a build in order. Raises BuildError."""
    state = BuildState(context)
    state.reused = reused
    for step in steps:
        step.run(context, state)
    return state


def publish_finished(context: BuildContext, entry: LockEntry) -> LockEntry:
    """Publish an engine that an earlier run finished. Raises PublishFailed."""
    state = BuildState(context)
    state.entry = entry
    if PUBLISH.applies(context):
        PUBLISH.run(context, state)
    return state.entry

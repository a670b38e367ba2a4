"""The steps of a build, in order: what is printed before a build is this very list."""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.packaging.reused_plan import ReusedPlan
from engine_build.request import BuildContext
from engine_build.steps.benchmark import BENCHMARK
from engine_build.steps.calibrate import CALIBRATE
from engine_build.steps.check import CHECK
from engine_build.steps.compile import COMPILE
from engine_build.steps.ensemble import (
    BENCHMARK_ENSEMBLE,
    COLLECT,
    PACKAGE_ENSEMBLE,
    VERIFY_ENSEMBLE,
)
from engine_build.steps.export import EXPORT
from engine_build.steps.fetch import FETCH, LOAD
from engine_build.steps.half_precision import HALF_PRECISION
from engine_build.steps.package import PACKAGE
from engine_build.steps.placement import PLACEMENT
from engine_build.steps.processing import PROCESSING
from engine_build.steps.publish import PUBLISH, PUBLISH_NETWORKS
from engine_build.steps.quantize import QUANTIZE, QUANTIZE_FOR_ENGINE
from engine_build.steps.reference import REFERENCE
from engine_build.steps.step import BuildState, Step
from engine_build.steps.triton_repository import FETCH_REPOSITORY, PACKAGE_REPOSITORY
from engine_build.steps.verify import VERIFY
from onboarding.lock import LockEntry

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
STEPS_OF_NETWORKS = (*NETWORK_STEPS, CHECK, PUBLISH_NETWORKS)
"""Every step of `--networks-only`."""
STEPS_OF_ENSEMBLES = (COLLECT, VERIFY_ENSEMBLE, BENCHMARK_ENSEMBLE, PACKAGE_ENSEMBLE, PUBLISH)
"""Every step of an archive that holds other models' engines."""

STEPS_OF_REPOSITORIES = (FETCH_REPOSITORY, PACKAGE_REPOSITORY, PUBLISH)
"""Every step of a Triton repository of the user's own."""


def step_names(context: BuildContext, steps: Sequence[Step] | None = None) -> list[str]:
    """Return the steps that a build has, by name; default: those of its engine."""
    return [step.name for step in _steps(context, steps) if step.applies(context)]


def _steps(context: BuildContext, steps: Sequence[Step] | None) -> Sequence[Step]:
    if steps is not None:
        return steps
    if context.request.plan_key is not None:
        return STEPS
    return STEPS_OF_ENSEMBLES if context.request.steps else STEPS_OF_REPOSITORIES


def run_steps(
    context: BuildContext,
    steps: Sequence[Step] | None = None,
    reused: ReusedPlan | None = None,
) -> BuildState:
    """Run the steps that a build has; default: those of its engine. Raises BuildError."""
    state = BuildState(context)
    state.reused = reused
    for step in _steps(context, steps):
        if step.applies(context):
            step.run(context, state)
    return state


def publish_finished(context: BuildContext, entry: LockEntry) -> LockEntry:
    """Publish an engine that an earlier run finished. Raises PublishFailed."""
    state = BuildState(context)
    state.entry = entry
    if PUBLISH.applies(context):
        PUBLISH.run(context, state)
    return state.entry

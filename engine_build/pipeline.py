"""The steps of a build, in order: what is printed before a build is this very list."""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.context import BuildContext
from engine_build.steps.benchmark import BENCHMARK
from engine_build.steps.calibrate import CALIBRATE
from engine_build.steps.check import CHECK
from engine_build.steps.compile import COMPILE
from engine_build.steps.export import EXPORT
from engine_build.steps.fetch import FETCH
from engine_build.steps.half_precision import HALF_PRECISION
from engine_build.steps.load import LOAD
from engine_build.steps.package import PACKAGE
from engine_build.steps.processing import PROCESSING
from engine_build.steps.publish import PUBLISH, PUBLISH_NETWORKS
from engine_build.steps.quantize import QUANTIZE
from engine_build.steps.reference import REFERENCE
from engine_build.steps.step import BuildState, Step
from engine_build.steps.verify import VERIFY
from onboarding.lock import LockEntry

NETWORK_STEPS = (FETCH, LOAD, EXPORT, PROCESSING, REFERENCE, QUANTIZE, HALF_PRECISION, CALIBRATE)
"""The steps on the CPU, whose networks every GPU shares."""
STEPS = (*NETWORK_STEPS, CHECK, COMPILE, VERIFY, BENCHMARK, PACKAGE, PUBLISH)
"""Every step of an engine."""
STEPS_OF_NETWORKS = (*NETWORK_STEPS, CHECK, PUBLISH_NETWORKS)
"""Every step of `--networks-only`."""


def step_names(context: BuildContext, steps: Sequence[Step] = STEPS) -> list[str]:
    """Return the steps that a build has, by name."""
    return [step.name for step in steps if step.applies(context)]


def run_steps(context: BuildContext, steps: Sequence[Step] = STEPS) -> BuildState:
    """Run the steps that a build has. Raises BuildError."""
    state = BuildState(context)
    for step in steps:
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

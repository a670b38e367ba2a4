"""The steps of a build, in order: what is printed before a build is this very list."""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.context import BuildContext
from engine_build.steps.check import CHECK
from engine_build.steps.compile import COMPILE
from engine_build.steps.evaluate import BENCHMARK, VERIFY
from engine_build.steps.package import PACKAGE
from engine_build.steps.prepare import NETWORK_STEPS
from engine_build.steps.publish import PUBLISH, PUBLISH_NETWORKS
from engine_build.steps.step import BuildState, Step, applicable
from onboarding.lock import LockEntry

STEPS: tuple[Step, ...] = (
    *NETWORK_STEPS,
    CHECK,
    COMPILE,
    VERIFY,
    BENCHMARK,
    PACKAGE,
    PUBLISH,
)
"""Every step of an engine."""
STEPS_OF_NETWORKS: tuple[Step, ...] = (*NETWORK_STEPS, CHECK, PUBLISH_NETWORKS)
"""Every step of `--networks-only`."""


def step_names(context: BuildContext, steps: Sequence[Step] = STEPS) -> str:
    """Return the steps ahead, as they are printed."""
    return ", ".join(step.name for step in applicable(steps, context))


def run_steps(context: BuildContext, steps: Sequence[Step] = STEPS) -> BuildState:
    """Run the steps that a build has. Raises BuildError."""
    state = BuildState(context)
    for step in applicable(steps, context):
        step.run(context, state)
    return state


def publish_finished(context: BuildContext, entry: LockEntry) -> LockEntry:
    """Publish an engine that an earlier run finished. Raises PublishFailed."""
    state = BuildState(context)
    state.entry = entry
    if PUBLISH.applies(context):
        PUBLISH.run(context, state)
    return state.entry

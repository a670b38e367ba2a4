"""What rows share: the machine, and MiniLM's engines, each built once."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from roundhouse.dev.gpu.engines import BuiltEngine
from roundhouse.dev.gpu.machine import GpuMachine, find_machine, missing, triton_line
from roundhouse.errors import RoundhouseError
from roundhouse.processes import Processes
from tests.gpu.minilm import ROOT, STORE, builds, minilm_tree, variables
from tests.gpu.triton import Plans

BENCHMARK_SECONDS = "5"
LEAST_CAPABILITY = {"bf16": 8.0, "fp8": 8.9}


@pytest.fixture(scope="session", name="variables")
def _variables() -> dict[str, str]:
    return variables()


@pytest.fixture(scope="session")
def machine(variables) -> GpuMachine:
    """The machine; rows that need it are not run where it lacks something."""
    found = find_machine(sys.executable, ROOT, variables, Processes())
    lacks = [thing for thing, _ in missing(found)]
    if lacks:
        pytest.skip(f"needs {'; '.join(lacks)}")
    return found


@pytest.fixture(scope="session")
def build(machine) -> Callable[[str], BuiltEngine]:
    """Build MiniLM in a precision, by the real command; what is known is not built again."""

    def once(precision: str) -> BuiltEngine:
        least = LEAST_CAPABILITY.get(precision, 0.0)
        if float(machine.host.compute_capability) < least:
            pytest.skip(f"{precision} needs compute capability {least}")
        tree = minilm_tree(
            precision, machine.platform, machine.instance_type, is_exact=machine.is_exact
        )
        seconds = {"ROUNDHOUSE_BENCHMARK_SECONDS": BENCHMARK_SECONDS}
        return builds(tree, STORE, machine.python, **seconds).build(f"minilm-{precision}")

    return once


@pytest.fixture(scope="session")
def engine(build) -> Callable[[str], BuiltEngine]:
    """Build MiniLM in a precision at the first use; a build that failed is not tried again."""
    outcomes: dict[str, BuiltEngine | RoundhouseError] = {}

    def once(precision: str) -> BuiltEngine:
        if precision not in outcomes:
            try:
                outcomes[precision] = build(precision)
            except RoundhouseError as error:
                outcomes[precision] = error
        outcome = outcomes[precision]
        if isinstance(outcome, RoundhouseError):
            raise outcome
        return outcome

    return once


@pytest.fixture(scope="session")
def source(machine, variables) -> Plans:
    """Triton of this machine, and plans."""
    if machine.triton is None:
        pytest.skip(triton_line(machine))
    return Plans(program=machine.triton, python=machine.python, variables=variables, has_plans=True)


@pytest.fixture(scope="session")
def plans(source) -> None:
    """What a row needs that reads TensorRT's own words in Triton's log, or the GPU's memory."""


@pytest.fixture(scope="session")
def device_mib(source) -> Callable[[], float]:
    """Return the memory that is taken on the GPU, by whomever."""
    from tests.gpu.plans import used_mib

    return used_mib

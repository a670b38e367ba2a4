"""What rows share: the machine, and MiniLM's engines, each built once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import pytest

from roundhouse.dev.gpu.engines import BuiltEngine
from roundhouse.dev.gpu.machine import GpuMachine, find_machine, missing
from roundhouse.processes import Processes
from tests.gpu.minilm import ROOT, STORE, builds, minilm_tree, variables

BENCHMARK_SECONDS = "5"


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
    tree = minilm_tree(machine.platform, machine.instance_type, is_exact=machine.is_exact)
    seconds = {"ROUNDHOUSE_BENCHMARK_SECONDS": BENCHMARK_SECONDS}
    own = builds(tree, STORE, machine.python, **seconds)
    return lambda precision: own.build(f"minilm-{precision}")


@pytest.fixture(scope="session")
def engine(build) -> Callable[[str], BuiltEngine]:
    return cache(build)

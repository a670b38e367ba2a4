"""Servers of the benchmark: how Triton is started, and what a load's numbers are worth."""

from __future__ import annotations

import json

import pytest

from benchmarks.runtimes.servers import read_rate, triton
from onboarding.serve_environment import serve_environment

pytestmark = pytest.mark.unit


def test_triton_starts_with_the_environment_that_endpoints_give_it(tmp_path):
    started = triton(tmp_path, tmp_path, "sentence-embedder")
    assert serve_environment("sentence-embedder").items() <= started.environment.items()


@pytest.mark.parametrize("fault", [{"failed": 1}, {"requests": 0}, {}])
def test_refuses_a_load_with_a_failed_request(fault):
    line = json.dumps({"requests": 10, "seconds": 2, "failed": 0} | fault)
    if not fault:
        assert read_rate(f"noise\nROUNDHOUSE {line}\n", "ours") == 5
        return
    with pytest.raises(ValueError, match=r"ours: . of .* requests failed"):
        read_rate(f"ROUNDHOUSE {line}\n", "ours")

"""Rows of the GPU on a CPU's Triton: the same archives and requests, plans stood in for."""

from __future__ import annotations

import os
import shutil

import pytest

from engine_build.packaging.repository import repository
from tests.contract.conftest import SERVER, TRITON
from tests.contract.head_archives import with_stand_in
from tests.fixtures.tiny_embedder.archive import REPOSITORY
from tests.gpu.test_multi_model import (  # noqa: F401
    endpoint,
    test_ensemble_of_a_text_model_joins_the_others,
    test_every_model_answers_by_its_target_name,
    test_memory_of_unloaded_models_serves_the_next_loads,
)
from tests.gpu.test_triton import (  # noqa: F401
    batched,
    forms,
    server,
    test_chain_of_two_models_answers_as_both_one_after_the_other,
    test_ensemble_answers_as_its_network_alone_and_in_batches,
    test_hostile_requests_cost_no_innocent_an_answer_and_no_memory,
    test_metrics_of_gpu_and_queue_are_passed_on,
    test_model_of_every_form_answers_as_its_network,
    test_repeated_request_is_answered_from_the_cache,
    test_requests_wait_for_a_batch_no_longer_than_they_may,
    test_server_ends_with_a_killed_process_and_comes_back,
)
from tests.gpu.triton import Source


class StandIns(Source):
    """Networks in ONNX Runtime, in a plan's place in an ensemble; alone as a CPU build has them."""

    def lay_out(self, served, network, tokenizer):
        is_plan = served.encoder is not None
        runtime = "tensorrt" if is_plan else "onnxruntime"
        laid = repository(served, network, tokenizer, runtime=runtime, code_roots=(REPOSITORY,))
        return (with_stand_in(laid, served.model, network) if is_plan else laid), {}


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """Triton of its wheel, laid out as $TRITON is: with the stub among its backends."""
    (packages,) = TRITON.glob("lib/python3*/site-packages")
    target = tmp_path_factory.mktemp("triton")
    wheel = packages / "pytriton" / "tritonserver"
    for name in ("bin", "caches"):
        copy(wheel / name, target / "pytriton" / "tritonserver" / name)
    copy(packages / "nvidia_pytriton.libs", target / "nvidia_pytriton.libs")
    copy(wheel / "backends", target / "backends")
    python = packages.parent.name.removeprefix("python")
    copy(wheel / "python_backend_stubs" / python, target / "backends" / "python")
    return StandIns(
        program=target / "pytriton" / "tritonserver" / "bin" / "tritonserver",
        python=str(SERVER / "bin" / "python"),
        variables={"PATH": f"{TRITON}/bin:/usr/bin:/bin"},
    )


def copy(folder, target):
    shutil.copytree(folder, target, copy_function=link, dirs_exist_ok=True)


def link(source, target):
    try:
        os.link(source, target)
    except OSError:  # of another file system
        shutil.copy2(source, target)


@pytest.fixture(scope="session")
def device_mib():
    """There is no GPU."""
    return lambda: 0.0

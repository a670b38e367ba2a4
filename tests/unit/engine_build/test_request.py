"""What is refused before anything is fetched."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples, Shape
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.options import Options
from engine_build.request import build_request, check_request
from onboarding.model_spec import SensitivitySearchSpec
from tests.unit.engine_build.tiny import model, sample_texts, write_tree


def request_of(root, model="tiny", log=None, **changes):
    chosen = Options(root=root, environment="desk", model=model, out=root / "out", **changes)
    return build_request(chosen, Log(io.StringIO() if log is None else log))


def with_engine(request, **changes):
    engine = request.model.engine.model_copy(update=changes)
    return dataclasses.replace(request, model=request.model.model_copy(update={"engine": engine}))


def test_request_takes_the_first_samples_and_every_validation_line(tmp_path):
    request = request_of(write_tree(tmp_path))
    assert request.calibration.values == tuple(sample_texts(60, seed=1)[:48])
    assert len(request.validation) == 120
    sizes = (request.opt_shape, request.longest_sequence, request.max_batch_size)
    assert sizes == (Shape(batch=2, sequence=8), 16, 4)


def test_request_of_fp32_has_no_calibration_and_takes_few_samples(tmp_path):
    root = write_tree(tmp_path, model("tiny", "fp32"), validation=["a cat", "a dog"])
    request = request_of(root)
    assert (len(request.calibration), len(request.validation)) == (0, 2)
    assert (request.may_be_int8, set(request.network_keys)) == (False, {"float"})


def test_refuses_few_samples_for_int8(tmp_path):
    root = write_tree(tmp_path, model("tiny", "int8"), validation=sample_texts(20, seed=2))
    words = r"validation.txt has 20 samples, too few to judge int8; give 100 or more"
    with pytest.raises(InputRefused, match=words):
        request_of(root)


def test_refuses_overlapping_datasets(tmp_path):
    request = request_of(write_tree(tmp_path))
    values = (*request.validation.values, request.calibration.values[3])
    words = r"1 samples of dataset models/data/validation.txt are in calibration .*, such as"
    with pytest.raises(InputRefused, match=words):
        check_request(dataclasses.replace(request, validation=Samples(values=values)))


@pytest.mark.parametrize(
    ("first", "second"),
    [("calibration", "validation"), ("search", "validation"), ("calibration", "search")],
)
def test_refuses_arrays_that_two_datasets_share(first, second, tmp_path):
    request = request_of(write_tree(tmp_path, model("tiny", "auto")))
    request = with_engine(
        request,
        sensitivity_search=SensitivitySearchSpec(dataset="models/data/search.npz", samples=4),
        calibration=request.model.engine.calibration.model_copy(update={"samples": 4}),
    )
    parts = {
        "calibration": Samples(values=tuple({"x": row} for row in np.eye(4))),
        "search": Samples(values=tuple({"x": row} for row in np.eye(4) * 2)),
        "validation": Samples(values=({"x": np.ones(4)},)),
    }
    check_request(dataclasses.replace(request, **parts))
    words = rf"4 samples of dataset .* are in {first} dataset .*never saw"
    with pytest.raises(InputRefused, match=words):
        check_request(dataclasses.replace(request, **parts | {second: parts[first]}))


def test_request_takes_the_engine_of_a_compute_capability(tmp_path):
    root = write_tree(tmp_path)
    with pytest.raises(InputRefused, match="tiny"):
        request_of(root, "tyni")
    assert request_of(root, compute_capability="cpu").engine_key == request_of(root).engine_key
    words = r"tiny is not served on that compute capability .*given 8\.9; allowed: cpu"
    with pytest.raises(InputRefused, match=words):
        request_of(root, compute_capability="8.9")


def test_request_tells_the_engines_of_several_gpu_generations_apart(tmp_path):
    endpoint = {
        "instance_type": "ml.g5.xlarge",
        "instance_pools": [{"instance_type": "ml.g6.xlarge"}],
        "latency_slo_ms": 50,
    }
    root = write_tree(tmp_path, model("tiny", endpoint=endpoint))
    environment = root / "environments/desk.yaml"
    environment.write_text(environment.read_text().replace("triton-24.10-cpu", "triton-26.05"))
    first, ampere, ada = (request_of(root, compute_capability=cc) for cc in (None, "8.6", "8.9"))
    capabilities = [request.compute_capability for request in (first, ampere, ada)]
    assert capabilities == ["8.6", "8.6", "8.9"]
    assert ada.engine_key != ampere.engine_key == first.engine_key


def test_refuses_a_tree_with_faults_and_shows_them_all(tmp_path):
    log = io.StringIO()
    with pytest.raises(InputRefused, match="2 faults stand above"):
        request_of(write_tree(tmp_path, model("tiny", speed=1, colour=2)), log=log)
    assert "speed" in log.getvalue() and "colour" in log.getvalue()


def test_faults_of_other_files_do_not_stop_a_build(tmp_path):
    root, log = write_tree(tmp_path, model("tiny"), model("other", speed=1)), io.StringIO()
    assert request_of(root, log=log).engine_key == request_of(root).engine_key
    line = "1 faults of files that this build does not read, such as models/other.yaml"
    assert line in log.getvalue()
    with pytest.raises(InputRefused, match="speed"):
        request_of(root, "other")

"""What is refused before anything is fetched."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples, Shape
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.options import Options, options
from engine_build.request import build_request, check_request
from onboarding.model_spec import SensitivitySearchSpec
from tests.unit.engine_build.tiny import model, sentences, write_tree


def resolved(root, name="tiny"):
    return build_request(
        Options(root=root, environment="desk", model=name, out=root / "out"), Log(io.StringIO())
    )


def test_request_takes_the_first_samples_and_every_validation_line(tmp_path):
    found = resolved(write_tree(tmp_path))
    assert found.calibration.values == tuple(sentences(60, seed=1)[:48])
    assert len(found.validation) == 120
    assert (found.opt_shape, found.longest_sequence, found.max_batch_size) == (
        Shape(batch=2, sequence=8),
        16,
        4,
    )


def test_request_of_fp32_has_no_calibration(tmp_path):
    found = resolved(write_tree(tmp_path, model("tiny", "fp32")))
    assert (len(found.calibration), found.may_be_int8, set(found.network_keys)) == (
        0,
        False,
        {"float"},
    )


def test_request_of_fp32_takes_few_samples(tmp_path):
    assert (
        len(
            resolved(
                write_tree(tmp_path, model("tiny", "fp32"), validation=["a cat", "a dog"])
            ).validation
        )
        == 2
    )


def test_refuses_few_samples_for_int8(tmp_path):
    with pytest.raises(
        InputRefused,
        match=r"validation.txt has 20 samples, too few to judge int8; give 100 or more",
    ):
        resolved(write_tree(tmp_path, model("tiny", "int8"), validation=sentences(20, seed=2)))


def test_refuses_a_calibration_dataset_that_is_too_short(tmp_path):
    sound = resolved(write_tree(tmp_path))
    with pytest.raises(InputRefused, match=r"calibration.txt has 20 samples, but 48 are asked for"):
        check_request(dataclasses.replace(sound, calibration=sound.calibration.first(20)))


def test_refuses_overlapping_datasets(tmp_path):
    sound = resolved(write_tree(tmp_path))
    shared = dataclasses.replace(
        sound, validation=Samples(values=(*sound.validation.values, sound.calibration.values[3]))
    )
    with pytest.raises(
        InputRefused,
        match=r"1 samples of dataset models/data/validation.txt are in calibration .*, such as",
    ):
        check_request(shared)


@pytest.mark.parametrize(
    ("first", "second"),
    [("calibration", "validation"), ("search", "validation"), ("calibration", "search")],
)
def test_refuses_arrays_that_two_datasets_share(first, second, tmp_path):
    sound = resolved(write_tree(tmp_path, model("tiny", "auto")))
    rows = {
        name: Samples(values=tuple({"x": row} for row in np.eye(4) * factor))
        for name, factor in (("a", 1), ("b", 2))
    }
    engine = sound.model.engine
    search = SensitivitySearchSpec(dataset="models/data/search.npz", samples=4)
    calibration = engine.calibration.model_copy(update={"samples": 4})
    searching = engine.model_copy(update={"sensitivity_search": search, "calibration": calibration})
    request = dataclasses.replace(sound, model=sound.model.model_copy(update={"engine": searching}))
    parts = {
        "calibration": rows["a"],
        "search": rows["b"],
        "validation": Samples(values=({"x": np.ones(4)},)),
    }
    check_request(dataclasses.replace(request, **parts))
    with pytest.raises(
        InputRefused, match=rf"4 samples of dataset .* are in {first} dataset .*never saw"
    ):
        check_request(dataclasses.replace(request, **parts | {second: parts[first]}))


def test_refuses_a_search_dataset_that_is_too_short(tmp_path):
    sound = resolved(write_tree(tmp_path))
    search = SensitivitySearchSpec(dataset="models/data/search.txt", samples=9)
    engine = sound.model.engine.model_copy(update={"sensitivity_search": search})
    request = dataclasses.replace(
        sound,
        model=sound.model.model_copy(update={"engine": engine}),
        search=Samples(values=("a",)),
    )
    with pytest.raises(
        InputRefused,
        match=r"search dataset models/data/search.txt has 1 samples, but 9 are asked for; add "
        r"samples",
    ):
        check_request(request)


def test_refuses_tensors_without_an_onnx_file(tmp_path):
    sound = resolved(write_tree(tmp_path))
    request = dataclasses.replace(sound, model=sound.model.model_copy(update={"task": "tensors"}))
    with pytest.raises(
        InputRefused,
        match=r"task tensors of tiny needs an ONNX file; allowed: source.onnx with its sha256",
    ):
        check_request(request)


def test_refuses_an_unknown_model_with_the_nearest_name(tmp_path):
    with pytest.raises(InputRefused, match="tiny"):
        resolved(write_tree(tmp_path), "tyni")


def test_request_takes_the_engine_of_a_compute_capability(tmp_path):
    root = write_tree(tmp_path)
    asked = Options(
        root=root, environment="desk", model="tiny", compute_capability="cpu", out=root / "out"
    )
    assert build_request(asked, Log(io.StringIO())).engine_key == resolved(root).engine_key


def test_request_tells_the_engines_of_several_gpu_generations_apart(tmp_path):
    spec = model("tiny")
    pools = {
        "instance_type": "ml.g5.xlarge",
        "instance_pools": [{"instance_type": "ml.g6.xlarge"}],
        "latency_slo_ms": 50,
    }
    root = write_tree(tmp_path, {**spec, "endpoint": pools})
    environment = root / "environments/desk.yaml"
    environment.write_text(environment.read_text().replace("triton-24.10-cpu", "triton-26.05"))

    def found(capability):
        asked = Options(
            root=root,
            environment="desk",
            model="tiny",
            compute_capability=capability,
            out=root / "out",
        )
        return build_request(asked, Log(io.StringIO()))

    assert (
        found(None).compute_capability,
        found("8.6").compute_capability,
        found("8.9").compute_capability,
    ) == ("8.6", "8.6", "8.9")
    assert found("8.9").engine_key != found("8.6").engine_key == found(None).engine_key


def test_refuses_a_compute_capability_that_does_not_serve_the_model(tmp_path):
    root = write_tree(tmp_path)
    asked = Options(
        root=root, environment="desk", model="tiny", compute_capability="8.9", out=root / "out"
    )
    with pytest.raises(
        InputRefused,
        match=r"tiny is not served on that compute capability .*given 8\.9; allowed: cpu",
    ):
        build_request(asked, Log(io.StringIO()))


def test_refuses_a_tree_with_faults_and_shows_them_all(tmp_path):
    root = write_tree(tmp_path, model("tiny", speed=1, colour=2))
    log = io.StringIO()
    with pytest.raises(InputRefused, match="2 faults stand above"):
        build_request(
            Options(root=root, environment="desk", model="tiny", out=root / "out"), Log(log)
        )
    assert "speed" in log.getvalue() and "colour" in log.getvalue()


def test_faults_of_other_files_do_not_stop_a_build(tmp_path):
    root = write_tree(tmp_path, model("tiny"), model("other", speed=1))
    log = io.StringIO()
    asked = Options(root=root, environment="desk", model="tiny", out=root / "out")
    assert build_request(asked, Log(log)).engine_key == resolved(root).engine_key
    assert "1 faults of files that this build does not read, such as models/other.yaml" in (
        log.getvalue()
    )
    with pytest.raises(InputRefused, match="speed"):
        resolved(root, "other")


def test_options_are_read(tmp_path):
    found = options(
        [
            "--environment",
            "desk",
            "--model",
            "tiny",
            "--out",
            str(tmp_path),
            "--publish",
            "s3://b",
            "--format",
            "json",
        ]
    )
    assert found.compute_capability is None
    given = [
        "--environment",
        "desk",
        "--model",
        "tiny",
        "--out",
        str(tmp_path),
        "--compute-capability",
        "8.9",
    ]
    assert options(given).compute_capability == "8.9"
    assert (found.environment, found.model, found.out, found.publish, found.format) == (
        "desk",
        "tiny",
        tmp_path,
        "s3://b",
        "json",
    )


def test_refuses_an_empty_compute_capability(tmp_path):
    given = [
        "--environment",
        "desk",
        "--model",
        "tiny",
        "--out",
        str(tmp_path),
        "--compute-capability",
        "",
    ]
    with pytest.raises(InputRefused, match=r"--compute-capability: it is empty"):
        options(given)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "--environment"), (["--mode", "x"], "--environment, --model, --out")],
)
def test_refuses_incomplete_options(arguments, words):
    with pytest.raises(InputRefused, match=words):
        options(arguments)

"""INT8 as a build asks for it: a search on one split, confirmed on another."""

from __future__ import annotations

import dataclasses

import pytest

from engine_build.errors import InputRefused
from engine_build.pipeline import NETWORK_STEPS, run_steps
from engine_build.steps.quantize import quantization_of
from engine_build.validated_frontier import main, validated_points
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sample_texts, write_tree

SEARCH = {"dataset": "models/data/search.txt", "samples": 100}


def searching(**changes):
    spec = model("tiny", "int8", **changes)
    return {**spec, "engine": {**spec["engine"], "sensitivity_search": SEARCH}}


@pytest.fixture
def tools(wheel, tmp_path):
    root = write_tree(tmp_path / "root", searching())
    (root / SEARCH["dataset"]).write_text("\n".join(sample_texts(100, seed=3)))
    return context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel), model="tiny")


def log_text(tools):
    return tools.log.path.read_text()


def test_a_search_choice_is_confirmed_on_the_validation_split(tools):
    with tools.work:
        tools.log.keep(tools.work.log_path)
        state = run_steps(tools, NETWORK_STEPS)
    facts = state.networks["int8"].facts
    assert facts["search_samples"] == 100
    assert facts["int8_layers"] == 12
    assert "INT8 on the validation split" in log_text(tools) and "within the budget" in log_text(
        tools
    )


def test_frontier_is_evaluated_again_on_the_validation_split(tools):
    with tools.work:
        points = validated_points(tools)
        again = run_steps(tools, NETWORK_STEPS).networks["int8"].facts["frontier"]
    assert [len(point.int8) for point in points] == [point["int8_layers"] for point in again]
    assert all(point.accuracy.samples == len(tools.request.validation) for point in points)
    # Of random weights, whose channels hardly move, six digits tell no point from another.
    assert points[-1].accuracy.worst >= points[0].accuracy.worst > 0.99


def test_without_a_search_nothing_is_evaluated(wheel, tmp_path):
    root = write_tree(tmp_path / "root", model("tiny", "int8"))
    plain = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel), model="tiny")
    with plain.work:
        plain.log.keep(plain.work.log_path)
        assert "frontier" not in run_steps(plain, NETWORK_STEPS).networks["int8"].facts
        assert "validation split" not in log_text(plain)
        with pytest.raises(InputRefused, match="asks for no sensitivity_search"):
            validated_points(plain)


def test_refuses_a_search_without_labels_for_the_metric_accuracy(tools):
    with tools.work:
        state = run_steps(tools, NETWORK_STEPS)
        accuracy = tools.request.model.accuracy.model_copy(update={"metric": "accuracy"})
        spec = tools.request.model.model_copy(update={"accuracy": accuracy})
        by_label = dataclasses.replace(
            tools, request=dataclasses.replace(tools.request, model=spec)
        )
        with pytest.raises(InputRefused, match=r"dataset models/data/search.txt has no labels"):
            quantization_of(by_label, state.networks["float"], state.encoder)


def test_refuses_unknown_arguments_in_a_sentence(capsys):
    assert main(["--wrong"]) == 1
    assert capsys.readouterr().err.startswith("FAILED: the following arguments are required")

"""Tensors between the steps of an ensemble."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onboarding.code_scan import code_problems
from onboarding.ensemble_spec import EnsembleSpec, StepSpec
from onboarding.manifest import TensorRecord
from onboarding.model_spec import ModelSpec
from onboarding.source_yaml import read_document
from onboarding.validation import validate
from onboarding.wiring import Interface, wiring, wiring_problems

pytestmark = pytest.mark.unit
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "several_models"


def record(name, *shape, datatype="FP32"):
    return TensorRecord(name=name, datatype=datatype, shape=(-1, *shape))


def interface(inputs, outputs):
    return Interface(inputs=tuple(inputs), outputs=tuple(outputs))


def step(model, inputs=None, outputs=None):
    return StepSpec(model=model, inputs=inputs or {}, outputs=outputs or {})


KNOWN = {
    "read": interface(
        [record("text", 1, datatype="BYTES")], [record("vector", 16), record("more")]
    ),
    "score": interface([record("vector", 16), record("bias")], [record("scores", 3)]),
}
STEPS = {
    "order": [step("score"), step("read")],
    "names": [
        step("score", {"vector": "v", "bias": "b"}, {"scores": "s"}),
        step("read", {"text": "t"}, {"vector": "v"}),
    ],
}


def test_steps_run_when_their_inputs_are_there_whatever_the_files_order():
    found = wiring(STEPS["order"], ["scores"], KNOWN)
    assert [item.model for item in found.steps] == ["read", "score"]
    assert found.steps[0].outputs == (("vector", "vector"),)  # nobody takes "more"
    assert [item.name for item in found.inputs] == ["bias", "text"]
    assert found.inputs[0].shape == (-1, 1)  # one value a row
    assert [item.name for item in found.outputs] == ["scores"]
    assert list(wiring_problems(STEPS["order"], ["scores"], KNOWN)) == []


def test_maps_rename_tensors_on_both_sides():
    found = wiring(STEPS["names"], ["s"], KNOWN)
    assert found.steps[0].inputs == (("text", "t"),)
    assert found.steps[1].inputs == (("vector", "v"), ("bias", "b"))
    assert [item.name for item in (*found.inputs, *found.outputs)] == ["b", "t", "s"]


def test_model_that_nobody_knows_yet_hides_what_it_may_answer():
    steps = [step("read"), step("later", {}, {"scores": "scores"})]
    assert list(wiring_problems(steps, ["scores"], KNOWN)) == []


@pytest.mark.parametrize("name", ["mood", "routed"])
def test_examples_of_the_docs_are_ensembles_whose_code_can_run(name):
    document, faults = read_document(EXAMPLES / f"{name}.yaml", f"models/{name}.yaml")
    checked = validate(ModelSpec, document)
    assert not faults and checked.is_valid and isinstance(checked.spec, EnsembleSpec)
    if checked.spec.bls is not None:
        code = (EXAMPLES / "route.py").read_bytes()
        assert hashlib.sha256(code).hexdigest() == checked.spec.bls.sha256
        assert code_problems(code, "execute") == ()


@pytest.mark.parametrize(
    ("shape", "words"),
    [((16,), None), ((-1,), None), ((8,), "the same sizes"), ((4, 4), "the same number of axes")],
)
def test_refuses_sizes_that_differ_and_takes_unknown_ones(shape, words):
    known = KNOWN | {"score": interface([record("vector", *shape)], [record("scores", 3)])}
    problems = list(wiring_problems([step("read"), step("score")], ["scores"], known))
    assert [problem.allowed for problem in problems] == ([] if words is None else [words])
    if words is not None:
        assert "read answers FP32 [-1, 16], and its input vector is FP32" in problems[0].what

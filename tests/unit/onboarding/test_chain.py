"""The tensors of a chain of models: which goes where, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from onboarding.chain import Interface, chain, chain_problems
from onboarding.document import read_document
from onboarding.manifest import TensorRecord
from onboarding.model_spec import EnsembleSpec, ModelSpec, StepSpec
from onboarding.validation import validate

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples/several_models"


def record(name, *sizes, datatype="FP32"):
    return TensorRecord(name=name, datatype=datatype, shape=(-1, *sizes))


KNOWN = {
    "read": Interface(
        inputs=(record("text", 1, datatype="BYTES"),),
        outputs=(record("vector", 16), record("more")),
    ),
    "score": Interface(inputs=(record("vector", 16),), outputs=(record("scores", 3),)),
    "embed": Interface(inputs=(record("text", 1, datatype="BYTES"),), outputs=(record("y", 16),)),
    "tanh": Interface(inputs=(record("x", 16),), outputs=(record("x", 16),)),
    "eight": Interface(inputs=(record("vector", 8),), outputs=(record("scores", 3),)),
    "any": Interface(inputs=(record("vector", -1),), outputs=(record("scores", 3),)),
    "square": Interface(inputs=(record("vector", 4, 4),), outputs=(record("scores", 3),)),
    "two": Interface(inputs=(record("vector", 16), record("bias")), outputs=(record("scores", 3),)),
}


def steps(names):
    return [StepSpec(model=name) for name in names.split()]


def test_outputs_go_to_inputs_of_their_names():
    found = chain(steps("read score"), ["scores"], KNOWN)
    assert [step.outputs for step in found.steps] == [
        (("vector", "vector"),),  # nobody takes "more"
        (("scores", "scores"),),
    ]
    assert [step.inputs for step in found.steps] == [(("text", "text"),), (("vector", "vector"),)]
    assert [record.name for record in (*found.inputs, *found.outputs)] == ["text", "scores"]


def test_outputs_of_other_names_are_taken_in_order_and_no_two_tensors_share_a_name():
    found = chain(steps("embed tanh tanh score"), ["scores"], KNOWN)
    assert [step.inputs for step in found.steps[1:]] == [
        (("x", "y"),),
        (("x", "x"),),
        (("vector", "x-2"),),
    ]
    assert [step.outputs for step in found.steps[1:3]] == [(("x", "x"),), (("x", "x-2"),)]


def test_one_value_a_row_is_an_axis_of_one():
    assert chain(steps("read"), ["more"], KNOWN).outputs[0].shape == (-1, 1)


@pytest.mark.parametrize(
    ("names", "output", "problems"),
    [
        ("read score", "scores", []),
        ("read any", "scores", []),
        ("read later", "scores", []),  # what nobody knows yet may answer it
        ("later score", "scores", []),
        ("read eight", "scores", ["its input vector is FP32 [-1, 8]; the same sizes"]),
        ("read square", "scores", ["FP32 [-1, 4, 4]; the same number of axes"]),
        ("score read", "more", ["its input text is BYTES [-1, 1]; the same datatype"]),
        ("read two", "scores", ["two takes vector, bias, and read answers vector, more; outputs"]),
        ("read embed", "y", ["embed takes text, and read answers vector, more; outputs of the"]),
        ("read score", "vector", ["'outputs[0]' is a tensor that score, the last model, does not"]),
        ("tanh", "x", ["a tensor that clients send to tanh, and Triton knows a tensor by its"]),
        ("read embed", "z", ["embed takes text", "embed, the last model, does not answer; y"]),
    ],
)
def test_refuses_tensors_that_do_not_fit(names, output, problems):
    found = list(chain_problems(steps(names), [output], KNOWN))
    assert len(found) == len(problems)
    for problem, words in zip(found, problems, strict=True):
        assert words in f"{problem.what}; {problem.allowed}"


def test_example_of_the_docs_is_an_ensemble():
    document, faults = read_document(EXAMPLES / "mood.yaml", "models/mood.yaml")
    checked, wrong = validate(ModelSpec, document)
    assert not faults and not wrong and isinstance(checked.spec, EnsembleSpec)

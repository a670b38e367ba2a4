"""Inputs of a kind that a model does not take are refused before a request is sent."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from onboarding.serving_spec import ServingSpec
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.invocation_inputs import require_inputs
from tests.unit.roundhouse.engines import copied_tree, local_deployments


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))


FILE = Path("a.npz")


@pytest.mark.parametrize(
    ("texts", "file", "message"), [((), None, "takes arrays"), (("a",), FILE, "takes arrays")]
)
def test_refuses_to_ask_a_model_of_arrays_without_arrays(deployments, texts, file, message):
    target = deployments[0].targets[0]
    arrays = dataclasses.replace(target, model=target.model.model_copy(update={"task": "tensors"}))
    require_inputs(arrays, (), FILE)
    with pytest.raises(RoundhouseError, match=message):
        require_inputs(arrays, texts, file)


@pytest.mark.parametrize(("texts", "file"), [((), None), (("a",), FILE), ((), FILE)])
def test_refuses_to_ask_a_model_of_texts_without_texts(deployments, texts, file):
    target = deployments[0].targets[0]
    require_inputs(target, ("a",), None)
    with pytest.raises(RoundhouseError, match="takes texts"):
        require_inputs(target, texts, file)


def test_refuses_texts_for_a_model_with_tensors_of_its_own(deployments):
    target = deployments[0].targets[0]
    tensors = [{"name": name, "datatype": "BYTES", "dims": [1]} for name in ("subject", "body")]
    code = {"file": "a.py", "sha256": "0" * 64}
    section = {"preprocessing": code | {"inputs": tensors}, "postprocessing": code}
    own = target.model.model_copy(
        update={"serving": ServingSpec.model_validate_json(json.dumps(section))}
    )
    own_target = dataclasses.replace(target, model=own)
    require_inputs(own_target, (), FILE)
    for texts, file in ((("a",), None), ((), None), (("a",), FILE)):
        with pytest.raises(UsageError, match=r"so it takes subject, body; give --input FILE\.npz"):
            require_inputs(own_target, texts, file)
    unchanged = target.model.model_copy(
        update={"serving": ServingSpec.model_validate_json(json.dumps({"preprocessing": code}))}
    )
    require_inputs(dataclasses.replace(target, model=unchanged), ("a",), None)

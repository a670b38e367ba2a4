"""Sizes of engines, and why a precision has none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.evaluation.decision import Findings, left_out, with_sizes
from onboarding.manifest import AccuracyRecord, RuntimeRecord

pytestmark = pytest.mark.unit
RECORD = RuntimeRecord(runtime="r", precision="fp32", load_seconds=1.0, host_memory_mib=2.0)
PASS = AccuracyRecord(
    subject="engine", metric="cosine", mean=1.0, worst=1.0, samples=9, budget_mean=0.9,
    verdict="pass",
)  # fmt: skip


def test_weights_of_a_network_are_counted_apart_from_its_file(tmp_path):
    weight = numpy_helper.from_array(np.zeros((8, 16), np.float16), "w")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 8])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1, 16])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", [value], [out], [weight])), path)
    record = with_sizes(RECORD, path)
    assert record.weights_bytes == 8 * 16 * 2 and record.engine_bytes == path.stat().st_size


def test_weights_of_a_plan_are_not_known(tmp_path):
    path = tmp_path / "model.plan"
    path.write_bytes(b"0" * 40)
    record = with_sizes(RECORD, path)
    assert (record.engine_bytes, record.weights_bytes) == (40, None)


def findings(*precisions, **fields):
    return Findings(accuracy=dict.fromkeys(precisions, PASS), broken={}, **fields)


def test_reasons_are_the_builds_own_first():
    found = findings("fp32", refused={"int8": "no layer holds the budget"})
    reasons = left_out("auto", found, is_cpu=True, is_given=False)
    assert reasons["int8"] == "no layer holds the budget"
    assert "gains nothing" in reasons["fp16"] and "fp32" not in reasons


def test_precisions_with_an_engine_have_no_reason():
    found = findings("fp16", "int8")
    reasons = left_out("auto", found, is_cpu=False, is_given=False)
    assert set(reasons) == {"fp32", "fp8"}


def test_one_precision_alone_leaves_the_others_out():
    reasons = left_out("fp16", findings("fp16"), is_cpu=False, is_given=False)
    assert set(reasons.values()) == {"the model file asks for fp16"}
    given = left_out("auto", findings("int8"), is_cpu=True, is_given=True)
    assert set(given.values()) == {"the source's own Q/DQ nodes leave no choice"}


def test_unsound_answers_are_a_reason():
    found = Findings(accuracy={"fp32": PASS}, broken={"int8": "int8 answers NaN."})
    assert left_out("auto", found, is_cpu=True, is_given=False)["int8"] == "int8 answers NaN."

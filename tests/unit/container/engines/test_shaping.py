"""Rows to arrays and answers to clients: types, padding, what fills a bucket up."""

from __future__ import annotations

import numpy as np
import pytest

from container.server.engines.buckets import Bucket, Buckets, ladder
from container.server.engines.shaping import TEXT_INPUTS, Tensor, TensorShaping, TokenShaping
from container.server.engines.tokens import Tokens
from onboarding.manifest import ProfileRecord, TensorRecord

PROFILE = ProfileRecord(batch=(2, 4, 4), sequence=(4, 8, 8))
BUCKETS = ladder([PROFILE], max_rows=4)
X, GAIN = (
    TensorRecord(name="x", datatype="FP32", shape=(-1, 2)),
    TensorRecord(name="gain", datatype="INT64", shape=(-1, 1)),
)


def texts(*, names=TEXT_INPUTS, type_=np.int64, buckets=BUCKETS):
    inputs = {name: Tensor(dtype=type_, rank=2) for name in names}
    return TokenShaping(buckets, inputs=inputs, outputs=["first", "second"])


def tensors(**more):
    inputs = {"gain": Tensor(dtype=np.int32, rank=1), "x": Tensor(dtype=np.float16, rank=2)}
    buckets = Buckets([Bucket(rows=4)], [ProfileRecord(batch=(1, 4, 4))])
    return TensorShaping(
        buckets, **({"inputs": inputs, "records": (X, GAIN), "outputs": (X, GAIN)} | more)
    )


def ids(*values, types=None):
    return Tokens(np.array(values, np.int32), None if types is None else np.array(types, np.int32))


def test_texts_are_padded_and_masked_up_to_the_bucket():
    (part,) = texts().parts([ids(5, 6, 7)])
    assert (part.rows, part.shapes["input_ids"]) == (1, (2, 4))
    assert part.feed["input_ids"].tolist() == [[5, 6, 7, 0], [0, 0, 0, 0]]
    assert part.feed["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert part.feed["token_type_ids"] is None


def test_token_types_are_sent_where_any_row_has_some():
    (part,) = texts().parts([ids(5, 6), ids(7, 8, types=(0, 1))])
    assert part.feed["token_type_ids"].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]


def test_texts_have_the_engines_inputs_and_types_alone():
    (part,) = texts(names=("input_ids", "attention_mask"), type_=np.int32).parts([ids(1)])
    types = {name: values.dtype for name, values in part.feed.items()}
    assert types == {"input_ids": np.int32, "attention_mask": np.int32}


def test_answer_of_a_text_is_the_first_output_as_float32():
    outputs = {"second": np.zeros((1, 1)), "first": np.full((1, 3), 0.5, np.float16)}
    (answer,) = texts().answer(outputs)
    assert answer.dtype == np.float32 and answer.tolist() == [[0.5, 0.5, 0.5]]


def test_tensors_are_stacked_by_name_and_filled_up_with_the_last():
    rows = [(np.array(x, np.float32), np.array([gain])) for x, gain in (((1, 2), 7), ((3, 4), 8))]
    (part,) = tensors().parts(rows)
    x, gain = part.feed["x"], part.feed["gain"]
    assert x.tolist() == [[1, 2], [3, 4], [3, 4], [3, 4]] and x.dtype == np.float16
    assert gain.tolist() == [7, 8, 8, 8] and gain.dtype == np.int32
    assert part.shapes == {"gain": (4,), "x": (4, 2)} and part.rows == 2


def test_one_value_a_row_is_answered_as_a_column():
    x, gain = tensors().answer({"gain": np.arange(2), "x": np.zeros((2, 2))})
    assert (x.shape, gain.tolist()) == ((2, 2), [[0], [1]])


def test_refuses_an_engine_that_wants_more_than_texts_give():
    with pytest.raises(ValueError, match="inputs are input_ids, pixels; a text model's are"):
        texts(names=("input_ids", "pixels"))


def test_refuses_a_text_engine_without_a_sequence():
    with pytest.raises(ValueError, match="has a sequence axis"):
        texts(buckets=ladder([ProfileRecord(batch=(1, 1, 1))], max_rows=1))


def test_refuses_tensors_that_the_manifest_names_otherwise():
    with pytest.raises(ValueError, match="inputs are gain, x; its manifest says x"):
        tensors(records=(X,))

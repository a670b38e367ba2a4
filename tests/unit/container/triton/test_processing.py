"""A user's code in a process of its own."""

from __future__ import annotations

import os
from contextlib import closing

import numpy as np
import pytest

from container.triton.processing import Processing

CODE = """
import os, time
import numpy as np

CALLS = []

def preprocess(inputs):
    CALLS.append(1)
    word = inputs.get("word")
    if word is not None and word[0, 0] == b"hang":
        time.sleep(600)
    if word is not None and word[0, 0] == b"exit":
        os._exit(7)
    if word is not None and word[0, 0] == b"refuse":
        raise ValueError("word[0] is 'refuse'.")
    print("on standard output")
    facts = [str(os.getpid()), str(len(CALLS)), ",".join(sorted(os.environ))]
    return dict(inputs) | {"facts": np.array([facts])}
"""
SECONDS = 0.5


@pytest.fixture(scope="module")
def processing(tmp_path_factory):
    file = tmp_path_factory.mktemp("code") / "code.py"
    file.write_text(CODE)
    with closing(Processing(file, "preprocess", seconds=SECONDS)) as one:
        yield one


def word(text: str):
    return {"word": np.array([[text.encode()]], object)}


def facts(processing) -> tuple[int, int, str]:
    pid, calls, variables = (item.decode() for item in processing.call({})["facts"][0])
    return int(pid), int(calls), variables


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([[True], [False]]),
        np.zeros((0, 4), np.int64),
        np.array([[b"\xff\0", "ü".encode()], [b"", b"a"]], object),
        np.array(5, np.uint8),
    ],
    ids=["floats", "booleans", "no rows", "bytes", "scalar"],
)
def test_tensors_come_back_as_they_went(array, processing):
    found = processing.call({"array": array})["array"]
    assert found.dtype == array.dtype and found.shape == array.shape
    assert np.array_equal(found, array)


def test_process_is_another_one_and_knows_no_variables_of_this_one(processing, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    processing.close()
    pid, calls, variables = facts(processing)
    assert pid != os.getpid() and calls == 1 and "AWS" not in variables
    assert facts(processing)[:2] == (pid, 2)


def test_refusal_is_the_users_own_sentence_and_keeps_the_process(processing):
    pid = facts(processing)[0]
    with pytest.raises(ValueError, match=r"^word\[0\] is 'refuse'\.$"):
        processing.call(word("refuse"))
    assert facts(processing)[0] == pid

"""MiniLM's FP16 plan behind the Python server and behind Triton: every vector against PyTorch's.

The archive is the one that SageMaker would unpack; Triton's is an ensemble of tokenizer and plan,
behind the server that checks its requests.
"""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager

import pytest

np = pytest.importorskip("numpy", reason="needs the environment that builds engines")
pytest.importorskip("onnxruntime", reason="needs the environment that builds engines")

from engine_build.datasets.dataset import samples
from roundhouse.dev.gpu.engines import unpack
from roundhouse.dev.gpu.machine import triton_line
from roundhouse.dev.gpu.servers import serving
from tests.gpu.minilm import FOLDER, ROOT, STORE
from tests.gpu.triton import cosines

pytestmark = pytest.mark.gpu
MODEL = "minilm-fp16"
LEAST_COSINE, LEAST_ALIKE = 0.9995, 0.99999
ROWS = 32
ROUNDS = 50


@contextmanager
def server_of(engine, machine, variables, triton=None):
    archive = unpack(engine("fp16").archive, FOLDER / "served" / MODEL)
    with serving(
        archive, MODEL, python=machine.python, variables=variables, tritonserver=triton
    ) as server:
        yield server


def check_every_vector(server, engine, record_property):
    texts = list(samples(ROOT / "models/data/validation-sentences.txt").values)
    vectors = [
        vector
        for begin in range(0, len(texts), ROWS)
        for vector in server.vectors(texts[begin : begin + ROWS])
    ]
    key = engine("fp16").entry.manifest.network_keys["float"]
    (path,) = (STORE / "networks" / key).glob("reference-*.npy")
    found, expected = np.array(vectors), np.load(path)
    worst = float(cosines(found, expected).min())
    alone = np.concatenate([server.vectors([text]) for text in texts])
    worst_alone = float(cosines(found, alone).min())
    milliseconds = []
    for number in range(ROUNDS):
        begin = time.perf_counter()
        server.vectors(texts[number : number + 1])
        milliseconds.append(1000 * (time.perf_counter() - begin))
    record_property("ready_seconds", server.ready_seconds)
    record_property("vectors", len(vectors))
    record_property("worst", worst)
    record_property("worst_alone", worst_alone)
    record_property("one_text_p50_ms", statistics.median(milliseconds))
    assert len(vectors) == len(expected)
    assert worst >= LEAST_COSINE and worst_alone >= LEAST_ALIKE
    return found


@pytest.fixture(scope="module")
def answers():
    """The vectors of each server, as its row finds them."""
    return {}


def test_python_server_answers_every_text_as_pytorch(
    engine, machine, variables, answers, record_property
):
    with server_of(engine, machine, variables) as server:
        answers["python"] = check_every_vector(server, engine, record_property)


def test_triton_answers_every_text_as_pytorch(engine, machine, variables, answers, record_property):
    if machine.triton is None:
        pytest.skip(triton_line(machine))
    with server_of(engine, machine, variables, machine.triton) as server:
        answers["triton"] = check_every_vector(server, engine, record_property)


def test_both_servers_answer_alike(answers, record_property):
    if len(answers) < 2:
        pytest.skip("needs the vectors of the two rows before it")
    worst = float(cosines(*answers.values()).min())
    record_property("worst", worst)
    assert worst >= LEAST_ALIKE

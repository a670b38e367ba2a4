"""Triton's TensorRT backend behind our server, as a SageMaker endpoint runs both.

The most telling rows come first; each runs alone too.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from container.wire import array_request, arrays_of, image_request, rows_of
from onboarding.manifest import ProfileRecord
from onboarding.serve_environment import ADDITIONAL_ARGS, PLUGINS, serve_environment
from onboarding.serving_spec import DynamicBatchingSpec, ServingSpec
from tests.contract.server_process import until
from tests.fixtures.hostile.clients import Tally, ask_all
from tests.fixtures.hostile.requests import TEXTS, hostile_requests
from tests.fixtures.tiny_embedder.archive import (
    CLASSIFIER,
    EMBEDDER,
    HERE,
    IMAGE_CLASSIFIER,
    TOKEN_CLASSIFIER,
)
from tests.gpu.triton import (
    LEAST_COSINE,
    STUB,
    TABLE,
    TRITON,
    column,
    cosines,
    embedder,
    evaluator,
    lookup,
    milliseconds,
    network_rows,
    png,
    ranker,
    running,
    several,
    softmax,
    tensor_model,
    texts,
    token_ids,
    write_archive,
    write_chain,
)

pytestmark = pytest.mark.gpu
ENGINE = f"{EMBEDDER.model}_engine"
PROFILES = (
    ProfileRecord(batch=(1, 4, 8), sequence=(8, 8, 8)),
    ProfileRecord(batch=(1, 8, 32), sequence=(8, 16, 32)),
)
GRAPHS = {(4, 8), (8, 16)}
"""Rows and tokens of both profiles' likeliest sizes."""
DELAY_US = 300_000
TEXT_REQUESTS, MOST_GROWTH, STAND_IN_MIB = 100, 0.02, 64
SEED, PAUSE = 27, 0.02
MODEL_BROKEN = 6
WORDS_OF = {8: 4, 16: 12, 32: 40}
"""Words of a text by the length that it is filled up to."""
RUN = r"Context with profile (\S+) \[\d+\] is (launching CUDA graph|being executed) for ([\w-]+)"

CAPTURED = r"captured CUDA graph for [\w-]+, batch size (\d+)"


@pytest.fixture(scope="module")
def server(source, tmp_path_factory):
    """An ensemble of tokenizer and plan: two profiles, two instances."""
    folder = tmp_path_factory.mktemp("texts")
    model = embedder(ServingSpec(instances_per_gpu=2), *PROFILES)
    write_archive(source, folder / "model", model)
    variables = serve_environment(model.model, metrics=True)
    variables["SAGEMAKER_TRITON_LOG_VERBOSE"] = "true"
    with running(source, folder / "model", folder, model=model.model, **variables) as server:
        yield server


def request_of(rows, length, seed=1):
    """A request of so many texts that are filled up to a length."""
    return array_request({"text": column(texts(seed, rows, WORDS_OF[length]))})


def test_first_request_is_as_fast_as_the_hundredth(server, source, record_property):
    """Of each size that warm-up ran; the median of their ratios, as single ones vary.

    Each request is alone and follows one of another size, the first or not: a core and a GPU that
    idled answer later, and TensorRT may take time for a shape that is not the one before.
    """
    server.client.request("GET", "/ping")
    sizes = (1, 8), (4, 8), (8, 8), (8, 16), (32, 32)
    requests = {size: request_of(*size) for size in sizes}
    spans = [
        [milliseconds(server, request, 1, PAUSE)[0] for request in requests.values()]
        for _ in range(100)
    ]
    ratios = []
    for (rows, length), (first, *others) in zip(sizes, zip(*spans, strict=True), strict=True):
        same = milliseconds(server, requests[rows, length], 20, PAUSE)[1:]
        found = [first, float(np.median(others)), float(np.median(same))]
        record_property(f"{rows}x{length}_ms", found)
        ratios.append(first / found[1])
    record_property("ready_seconds", server.ready_seconds)
    record_property("ratios", ratios)
    assert np.median(ratios) <= (1.1 if source.has_plans else 5)


def test_ensemble_answers_as_its_network_alone_and_in_batches(server, record_property):
    rows = texts(SEED, TEXT_REQUESTS)
    expected = network_rows(HERE / "model.onnx", [(text,) for text in rows])
    for size in (1, 7, 32):
        batches = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
        found = np.concatenate([server.vectors(batch) for batch in batches])
        worst = float(cosines(found, expected).min())
        record_property(f"worst_cosine_of_{size}", worst)
        assert worst >= LEAST_COSINE


def runs_of(server, begin):
    """Profile, whether a graph was launched, and instance of each run in the log."""
    found = re.findall(RUN, server.log.read_text(errors="replace")[begin:])
    return [(profile, how.startswith("launching"), instance) for profile, how, instance in found]


def log_end(server):
    return len(server.log.read_text(errors="replace"))


def test_graphs_are_launched_for_the_listed_shapes_alone(plans, server, record_property):
    captured = re.findall(
        r"captured CUDA graph for [\w-]+, batch size (\d+)", server.log.read_text()
    )
    record_property("captured", dict(Counter(captured)))
    assert {f"{rows}" for rows, _ in GRAPHS} <= set(captured), server.words()
    for rows, length in ((4, 8), (8, 16), (3, 8), (7, 16), (16, 32)):
        begin = log_end(server)
        spans = milliseconds(server, request_of(rows, length), 50)
        record_property(f"{rows}x{length}_p50_ms", float(np.median(spans)))
        runs = until(lambda begin=begin: runs_of(server, begin), "a run in Triton's log")
        # A health request, of one row, may be among them.
        graphs = sum(is_graph for _, is_graph, _ in runs)
        assert (graphs >= 45) if (rows, length) in GRAPHS else graphs == 0, (rows, length, runs)


def test_both_instances_and_both_profiles_run(plans, server, record_property):
    requests = [request_of(rows, length) for rows, length in ((1, 8), (4, 8), (8, 16), (32, 32))]
    begin = log_end(server)
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda request: server.send(*request), requests * 50))
    assert {answer.status for answer in answers} == {200}
    runs = runs_of(server, begin)
    for name, place in (("profiles", 0), ("instances", 2)):
        counts = Counter(run[place] for run in runs)
        record_property(name, dict(counts))
        assert len(counts) == 2, (name, counts)


def test_metrics_of_gpu_and_queue_are_passed_on(server, source, record_property):
    milliseconds(server, request_of(1, 8), 3)
    text = server.metrics()
    names = ["request_success", "request_failure", "count", "exec_count", "queue_duration_us"]
    wanted = [f"nv_inference_{name}{{" for name in names]
    wanted += ["nv_gpu_memory_used_bytes{", "nv_gpu_utilization{"] if source.has_plans else []
    assert [name for name in wanted if name not in text] == []
    assert server.count("nv_inference_request_success", ENGINE) >= 3
    record_property("names", len(set(re.findall(r"^(nv_\w+){", text, re.MULTILINE))))


class Innocents:
    """Clients that send one right request all the time, until the block ends."""

    def __init__(self, server, count=4):
        self._server, self._stop = server, threading.Event()
        self._right = server.vectors(["a dog"])
        self.outcomes, self.wrong = Counter(), []
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self):
        request = array_request({"text": column(["a dog"])})
        while not self._stop.is_set():
            try:
                answer = self._server.send(*request)
            except (OSError, http.client.HTTPException):
                self.outcomes["gone"] += 1
                self._stop.wait(0.01)
                continue
            self.outcomes[answer.status] += 1
            if answer.status == 200:
                found = rows_of(answer.body, answer.headers["content-type"])
                if cosines(found, self._right)[0] < LEAST_COSINE:
                    self.wrong.append(answer.body)


def test_hostile_requests_cost_no_innocent_an_answer_and_no_memory(
    source, device_mib, tmp_path, record_property
):
    def ask(seed, count):
        tally = Tally()
        asyncio.run(ask_all(server.port, hostile_requests(seed, count, TEXTS), tally))
        assert tally.wrong[:3] == [], server.words()
        return tally

    def memory():
        return {"host": server.resident_mib(), "device": device_mib()}

    write_archive(source, tmp_path / "model", EMBEDDER)
    count = 10_000 if source.has_plans else 500
    with running(source, tmp_path / "model", tmp_path, model=EMBEDDER.model) as server:
        with Innocents(server) as innocents:
            ask(SEED, count // 5)
            before = memory()
            tally = ask(SEED + 1, count)
        after = memory()
        assert server.is_healthy()
    record_property("statuses", {str(status): n for status, n in tally.statuses.items()})
    record_property("innocents", {str(key): n for key, n in innocents.outcomes.items()})
    record_property("mib", [before, after])
    assert {200, 400, 404, 405, 415} <= set(tally.statuses)
    assert set(innocents.outcomes) == {200} and innocents.wrong == []
    for name, mib in before.items():
        most = MOST_GROWTH * mib if source.has_plans else STAND_IN_MIB
        assert after[name] - mib <= most, name


# Models of every form, in a server of several

CLASSIFIER_WITH_HEAD = replace(CLASSIFIER, served=replace(CLASSIFIER.served, activation="softmax"))


def check_classifier(server, network):
    rows = texts(SEED, 20)
    answer = server.answers({"text": column(rows)}, model="classifier")
    logits = network_rows(HERE / "classifier.onnx", [(text,) for text in rows])
    scores = softmax(np.array(logits))
    assert np.allclose(answer["scores"], -np.sort(-scores, axis=1), atol=1e-4)
    names = np.array(CLASSIFIER.labels, object)[scores.argmax(1)]
    assert (answer["labels"][:, 0] == names).all()


def check_ranker(server, network):
    pairs = list(zip(texts(SEED, 20, 7), texts(SEED + 1, 20, 9), strict=True))
    queries, others = zip(*pairs, strict=True)
    feed = {"query": column(queries), "text": column(others)}
    answer = server.answers(feed, model="ranker")["scores"]
    expected = 1 / (1 + np.exp(-np.array(network_rows(network, pairs))))
    assert np.allclose(answer, expected, atol=1e-4)


def check_tokens(server, network):
    rows = texts(SEED, 10, 12)
    answer = server.answers({"text": column(rows)}, model="tokens")
    logits = network_rows(HERE / "tokens.onnx", [(text,) for text in rows])
    for place, (text, values) in enumerate(zip(rows, logits, strict=True)):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        assert [tuple(span) for span in answer["offsets"][place]] == spans
        # The two special tokens are none of the text.
        classes = softmax(values)[1:-1]
        assert len(token_ids(text)[0]) == len(spans) + 2
        names = np.array(TOKEN_CLASSIFIER.labels, object)[classes.argmax(1)]
        assert (answer["labels"][place] == names).all()
        assert np.allclose(answer["scores"][place], classes.max(1), atol=1e-4)


def check_images(server, network):
    pixels = np.random.default_rng(SEED).integers(0, 256, (20, 8, 8, 3), np.uint8)
    answer = server.send(*image_request([png(picture) for picture in pixels]), model="images")
    assert answer.status == 200, (answer.body[:500], server.words())
    found = arrays_of(answer.body, answer.headers["content-type"])
    feed = {"pixel_values": (pixels / 255).astype(np.float32).transpose(0, 3, 1, 2)}
    (logits,) = evaluator(HERE / "pictures.onnx").run(None, feed)
    scores = softmax(logits)
    assert np.allclose(found["scores"], -np.sort(-scores, axis=1), atol=1e-4)
    names = np.array(IMAGE_CLASSIFIER.labels, object)[scores.argmax(1)]
    assert (found["labels"][:, 0] == names).all()


def check_lookup(server, network):
    """An index beyond the table is the caller's fault; a plan would read beyond it."""
    for values, status in (([0, 3, -1], 200), ([99], 400), ([-5], 400), ([2**62], 400)):
        for is_binary in (False, True):
            feed = {"category": np.array(values)[:, None]}
            answer = server.send(*array_request(feed, binary=is_binary), model="lookup")
            assert answer.status == status, (values, answer.status, answer.body, server.words())
    tensor = b'{"name":"category","shape":[1,1],"datatype":"INT64","data":[9223372036854775808]}'
    assert server.send(b'{"inputs":[' + tensor + b"]}", model="lookup").status == 400
    found = server.answers({"category": np.array([[0], [3], [-1]])}, model="lookup")["y"]
    assert np.array_equal(found, TABLE[[0, 3, -1]])


CHECKS = {
    "images": check_images,
    "ranker": check_ranker,
    "lookup": check_lookup,
    "tokens": check_tokens,
    "classifier": check_classifier,
}
TINY = {
    "images": IMAGE_CLASSIFIER,
    "tokens": TOKEN_CLASSIFIER,
    "classifier": CLASSIFIER_WITH_HEAD,
}
MADE = {"lookup": lookup, "ranker": ranker}


@pytest.fixture(scope="module")
def forms(source, tmp_path_factory):
    with several(source, tmp_path_factory.mktemp("forms")) as server:
        yield server


@pytest.mark.parametrize("name", CHECKS)
def test_model_of_every_form_answers_as_its_network(name, source, forms, tmp_path, record_property):
    root, network = tmp_path / "model", None
    if name in MADE:
        model, network = MADE[name](tmp_path)
        write_archive(source, root, model, network)
    else:
        write_archive(source, root, TINY[name])
    begin = time.monotonic()
    answer = forms.load(name, root)
    record_property("load_seconds", time.monotonic() - begin)
    assert answer.status == 200, (answer.body, forms.words())
    CHECKS[name](forms, network)
    assert forms.unload(name).status == 200 and forms.is_healthy()


def test_chain_of_two_models_answers_as_both_one_after_the_other(source, tmp_path):
    """In an endpoint of its own: the names of its models would meet those of others."""
    write_chain(source, tmp_path / "model")
    rows = texts(SEED, 8)
    vectors = np.array(network_rows(HERE / "model.onnx", [(text,) for text in rows]))
    (expected,) = evaluator(HERE / "scorer.onnx").run(None, {"vector": vectors})
    with running(source, tmp_path / "model", tmp_path / "run", model="chain") as server:
        answer = server.answers({"text": column(rows)})["scores"]
    assert np.allclose(answer, expected, atol=1e-4)


# Batching and the response cache


@pytest.fixture(scope="module")
def batched(source, tmp_path_factory):
    """A server that waits for batches of 8, and remembers its answers where it can."""
    folder = tmp_path_factory.mktemp("batched")
    spec = DynamicBatchingSpec(preferred_batch_sizes=(8,), max_queue_delay_us=DELAY_US)
    model = embedder(ServingSpec(dynamic_batching=spec, response_cache=source.has_cache))
    write_archive(source, folder / "model", model)
    variables = serve_environment(model.model, metrics=True, response_cache=source.has_cache)
    with running(source, folder / "model", folder, model=model.model, **variables) as server:
        yield server


def test_requests_wait_for_a_batch_no_longer_than_they_may(batched, record_property):
    requests = [array_request({"text": column([text])}) for text in texts(SEED, 9, 4)]
    (lone,) = milliseconds(batched, requests[8], 1)
    before = batched.count("nv_inference_exec_count", ENGINE)
    with ThreadPoolExecutor(8) as clients:
        spans = list(clients.map(lambda item: milliseconds(batched, item, 1)[0], requests[:8]))
    runs = batched.count("nv_inference_exec_count", ENGINE) - before
    record_property("lone_ms", lone)
    record_property("eight_ms", max(spans))
    record_property("runs_of_eight", runs)
    # A health request may be among them.
    assert lone >= 0.9 * DELAY_US / 1e3 > max(spans) and 1 <= runs <= 2


def test_repeated_request_is_answered_from_the_cache(batched, source, record_property):
    if not source.has_cache:
        pytest.skip(f"{source.program} has no caches/local beside its bin/")
    request = array_request({"text": column(texts(SEED + 1, 2, 9))})
    first, *others = milliseconds(batched, request, 20)
    record_property("first_and_cached_ms", [first, float(np.median(others))])
    # No run, so no wait for a batch.
    assert first >= 0.9 * DELAY_US / 1e3 > max(others)


# Deaths


@pytest.mark.parametrize(("name", "code"), [(TRITON, 1), (STUB, MODEL_BROKEN)])
def test_server_ends_with_a_killed_process_and_comes_back(
    name, code, source, tmp_path, record_property
):
    write_archive(source, tmp_path / "model", EMBEDDER)
    start = (source, tmp_path / "model")
    with running(*start, tmp_path / "one", model=EMBEDDER.model) as server:
        with Innocents(server, 8) as innocents:
            until(lambda: innocents.outcomes[200] > 100, "a server under load")
            begin = time.monotonic()
            os.kill(server.processes(name)[0], signal.SIGKILL)
            ended = server.process.wait(60)
            seconds = time.monotonic() - begin
        record_property("outcomes", {str(key): n for key, n in innocents.outcomes.items()})
        record_property("seconds_to_the_end", seconds)
        assert ended == code, (ended, server.words())
        assert innocents.wrong == [] and set(innocents.outcomes) <= {200, 500, 503, "gone"}
    with running(*start, tmp_path / "two", model=EMBEDDER.model) as server:
        record_property("seconds_until_healthy", server.ready_seconds)
        assert server.vectors(["a dog"]).shape == (1, 16)


# Plugins


def test_library_of_a_custom_operator_is_loaded_before_its_plan(plans, source, tmp_path):
    from tests.gpu.test_compiled_plans import rotating_plan

    library, plan = rotating_plan(tmp_path)
    write_archive(source, tmp_path / "model", tensor_model("rotate", 4, 4, (1, 2, 8)), plan)
    variables = serve_environment("rotate")
    # The image has an archive's libraries below /opt/ml/model.
    variables[ADDITIONAL_ARGS] += f" {PLUGINS}{library}"
    root, x = tmp_path / "model", np.arange(-4, 8, dtype=np.float32).reshape(3, 4)
    with running(source, root, tmp_path / "run", model="rotate", **variables) as server:
        found = server.answers({"x": x})["y"]
    assert np.array_equal(found, np.maximum(np.roll(x, -1, axis=1), 0))

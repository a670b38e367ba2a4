"""Labels, rankings and entities on both servers against transformers and sentence-transformers."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from container.entities import entities_of
from tests.contract.head_archives import BATCH, HeadModel, several
from tests.fixtures.tiny_embedder.archive import REPOSITORY

BUILDER = REPOSITORY / ".venvs" / "builder" / "bin" / "python"
NAMES = ("single", "multi", "regression", "ranker", "raw-ranker", "tokens")
SERVERS = ("python", "triton", "ensemble")
"""An ensemble is the archive of a GPU in the same Triton, its plan stood in for."""
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    command = (str(BUILDER), "-m", "tests.contract.head_models", str(folder))
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    return {name: HeadModel(name=name, folder=folder / name) for name in NAMES}


@pytest.fixture(scope="module")
def servers(models, archive, tmp_path_factory):
    root = tmp_path_factory.mktemp("archives")
    cpu = {name: model.write_archive(root / name) for name, model in models.items()}
    gpu = {
        f"{name}-ensemble": model.write_archive(root / f"{name}-ensemble", is_ensemble=True)
        for name, model in models.items()
    }
    with (
        several("python-mme", archive, cpu, tmp_path_factory.mktemp("python")) as python,
        several("triton-mme", archive, cpu | gpu, tmp_path_factory.mktemp("triton")) as triton,
    ):
        yield {"python": (python, ""), "triton": (triton, ""), "ensemble": (triton, "-ensemble")}


@pytest.fixture(params=SERVERS)
def answers(request, servers):
    """Gives each output of each request of some of a model's samples, in order."""
    server, suffix = servers[request.param]

    def answer(model, binary=False):
        samples = model.facts["samples"]
        parts = [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]
        return [server.arrays(model, part, suffix=suffix, binary=binary) for part in parts]

    return answer


def labelled(parts):
    """Each text's labels with their scores, in the order of the answer."""
    return [
        list(zip(names, scores, strict=True))
        for part in parts
        for names, scores in zip(part["labels"], part["scores"], strict=True)
    ]


def entities(parts):
    """Each text's tokens that are of an entity: label, score, begin and end."""
    return [
        [
            (label, score, *offsets)
            for label, score, offsets in zip(*row, strict=True)
            if offsets[0] >= 0 and label != "O"
        ]
        for part in parts
        for row in zip(part["labels"], part["scores"], part["offsets"], strict=True)
    ]


@pytest.mark.parametrize("name", ["single", "multi", "regression"])
def test_labels_and_scores_are_those_of_the_pipeline(name, models, answers):
    model = models[name]
    found, expected = labelled(answers(model)), model.facts["expected"]
    assert len(found) == len(expected) == 200
    for own, theirs in zip(found, expected, strict=True):
        assert dict(own) == pytest.approx(dict(map(tuple, theirs)), abs=TOLERANCE)
        scores = [score for _, score in own]
        assert scores == sorted(scores, reverse=True)


def test_logits_of_a_classifier_are_answered_beside_its_labels(models, answers):
    for part in answers(models["single"]):
        powers = np.exp(part["logits"])
        shares = np.sort(powers / powers.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
        assert np.allclose(shares, part["scores"], atol=TOLERANCE)


@pytest.mark.parametrize("name", ["ranker", "raw-ranker"])
def test_scores_of_pairs_are_those_of_predict(name, models, answers):
    model = models[name]
    found = np.concatenate([part["scores"] for part in answers(model)])
    assert found.shape == (200, 1) and len(np.unique(found)) > 150
    assert np.allclose(found[:, 0], model.facts["expected"], atol=TOLERANCE)


def test_entities_of_tokens_are_those_of_the_pipeline(models, answers):
    model = models["tokens"]
    found = entities(answers(model))
    assert len(found) == 200 and sum(map(len, found)) > 400
    for own, (theirs, _) in zip(found, model.facts["expected"], strict=True):
        assert [(label, *span) for label, _, *span in own] == [
            (label, *span) for label, _, *span in theirs
        ]
        assert [row[1] for row in own] == pytest.approx([row[1] for row in theirs], abs=TOLERANCE)


def test_grouped_entities_are_those_of_the_pipelines_simple_strategy(models, answers):
    model = models["tokens"]
    starts = range(0, 200, BATCH)
    groups = zip(answers(model), starts, strict=True)
    found = [
        entity
        for part, start in groups
        for entity in entities_of(part, model.facts["samples"][start : start + BATCH], grouped=True)
    ]
    for own, (_, theirs) in zip(found, model.facts["expected"], strict=True):
        assert [(entity.label, entity.start, entity.end) for entity in own] == [
            (label, *span) for label, _, *span in theirs
        ]
        assert [entity.score for entity in own] == pytest.approx(
            [row[1] for row in theirs], abs=TOLERANCE
        )


@pytest.mark.parametrize("name", NAMES)
def test_binary_answers_are_those_of_json(name, models, answers):
    for json_part, binary_part in zip(
        answers(models[name]), answers(models[name], binary=True), strict=True
    ):
        assert sorted(json_part) == sorted(binary_part)
        for output, array in json_part.items():
            assert array.shape == binary_part[output].shape
            is_text = array.dtype == object
            assert (
                (array == binary_part[output]).all()
                if is_text
                else np.allclose(array, binary_part[output], atol=TOLERANCE)
            )


def test_concurrent_requests_of_tokens_get_their_own_rows(models, servers):
    model = models["tokens"]
    texts = [text for text in model.facts["samples"] if text.strip()][:40]
    for server, suffix in servers.values():
        alone = [server.arrays(model, [text], suffix=suffix) for text in texts]
        with ThreadPoolExecutor(8) as clients:
            ask = lambda text, server=server, suffix=suffix: server.arrays(
                model, [text], suffix=suffix
            )
            together = list(clients.map(ask, texts))
        for one, other in zip(alone, together, strict=True):
            assert (one["labels"] == other["labels"]).all()
            assert (one["offsets"] == other["offsets"]).all()


def test_client_asks_for_labels_alone(models, servers):
    text = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a cat"]}
    body = json.dumps({"inputs": [text], "outputs": [{"name": "labels"}]}).encode()
    for server, suffix in servers.values():
        answer = server.send(f"single{suffix}", body)
        assert answer.status == 200, (suffix, answer.body)
        (output,) = json.loads(answer.body)["outputs"]
        assert (output["name"], output["datatype"], output["shape"]) == ("labels", "BYTES", [1, 3])


def plain(server, name, **document):
    answer = server.send(name, json.dumps(document).encode())
    return answer.status, json.loads(answer.body)


def test_python_server_answers_plain_json(models, servers):
    python, _ = servers["python"]
    status, document = plain(python, "single", inputs=["a cat", "a dog"], parameters={"top_k": 1})
    assert status == 200 and [len(row) for row in document["outputs"]] == [1, 1]
    assert set(document["outputs"][0][0]) == {"label", "score"}
    _, document = plain(python, "ranker", query="a cat", texts=["a dog", "the cat sat", "a bird"])
    ranked = [row["score"] for row in document["outputs"]]
    assert sorted(row["index"] for row in document["outputs"]) == [0, 1, 2]
    assert ranked == sorted(ranked, reverse=True)
    text = models["tokens"].facts["samples"][0]
    _, document = plain(python, "tokens", inputs=text)
    expected = models["tokens"].facts["expected"][0][0]
    found = [(row["entity"], row["start"], row["end"]) for row in document["outputs"][0]]
    assert found == [(label, *span) for label, _, *span in expected]


def test_refuses_pairs_of_different_counts_and_half_a_pair(models, servers):
    def column(name, texts):
        return {"name": name, "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}

    odd = [column("query", ["a"]), column("text", ["b", "c"])]
    for inputs in (odd, odd[:1]):
        for server, suffix in servers.values():
            answer = server.send(f"ranker{suffix}", json.dumps({"inputs": inputs}).encode())
            assert answer.status == 400 and list(json.loads(answer.body)) == ["error"]

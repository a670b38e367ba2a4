"""Endpoints of embedders give what sentence-transformers' `encode()` gives, on both servers."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from onboarding.manifest import Prompts, TensorRecord
from tests.contract.conftest import TARGET_HEADER, load, rows, serving
from tests.contract.embedder_archives import NAMES, PROMPT
from tests.contract.requests import json_request
from tests.contract.test_long_texts import write_form
from tests.fixtures.tiny_embedder.archive import EMBEDDER, REPOSITORY

BUILDER = REPOSITORY / ".venvs" / "builder" / "bin" / "python"
ROWS = 32
pytestmark = pytest.mark.skipif(not BUILDER.exists(), reason=f"needs {BUILDER}")


@pytest.fixture(scope="module")
def embedders(tmp_path_factory):
    """A folder of exported embedders with the vectors of `encode()`."""
    root = tmp_path_factory.mktemp("embedders")
    argv = [str(BUILDER), "-m", "tests.contract.embedder_archives", str(root)]
    ended = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for name in NAMES:
        write_embedder_archive(root / name, name)
    return root


def write_embedder_archive(folder, name):
    """The archive that a CPU build makes of an exported network."""
    width = np.load(folder / "vectors.npy").shape[1]
    output = TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, width))
    model = f"embedder-{NAMES.index(name)}"
    served = replace(EMBEDDER.served, model=model, outputs=(output,))
    tiny = replace(EMBEDDER, served=served, network=str(folder / "model"))
    prompts = Prompts(texts={"query": PROMPT}, default_prompt_name="query")
    known = {"prompts": prompts} if name == NAMES[-1] else {}
    tokenizer = folder / "tokenizer.json"
    write_form(folder / "archive", tiny, "cpu", served, tokenizer=tokenizer, **known)


@pytest.fixture(scope="module", params=["python-mme", "triton-mme"])
def server(request, embedders, tmp_path_factory):
    """A multi-model server that has loaded every embedder, by its name."""
    folder = tmp_path_factory.mktemp(request.param)
    with serving(request.param, embedders / NAMES[0] / "archive", folder) as one:
        served = {NAMES[0]: one}
        for index, name in enumerate(NAMES[1:], 1):
            archive, target = embedders / name / "archive", f"{index:016x}/model.tar.gz"
            answer = load(one.client, archive, name=f"hash{index}", target=target)
            assert answer.status == 200, answer.body
            path, headers = f"/models/hash{index}/invoke", {TARGET_HEADER: target}
            served[name] = replace(one, infer_path=path, headers=headers)
        yield served


@pytest.mark.parametrize("name", NAMES)
def test_endpoint_gives_what_encode_gives(name, server, embedders):
    texts = json.loads((embedders / "texts.json").read_text())
    expected = np.load(embedders / name / "vectors.npy")
    parts = [texts[start : start + ROWS] for start in range(0, len(texts), ROWS)]
    vectors = np.concatenate([rows(server[name].ask(json_request(part))) for part in parts])
    assert vectors.shape == expected.shape
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((vectors * expected).sum(axis=1) / lengths).min() >= 0.9999
    assert np.abs(vectors - expected).max() < 1e-4

"""Two models, an ensemble of them, and a Triton repository: built, deployed and invoked.

Everything is real but AWS and the GPU: engines by ONNX Runtime, in real Triton.
"""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest

from onboarding.checkpoint import checkpoint_sha256
from onboarding.lock import read_lock
from roundhouse.deploy.builds import engines
from tests.local_cloud.tiny_session import FIXTURE, deploy_all, vector

pytestmark = pytest.mark.local_cloud
SCORER = """\
name: scorer
task: tensors
source: {{onnx: models/tiny/scorer.onnx, sha256: {network}}}
engine: {{precision: fp32, optimization_profiles: [{{batch: [1, 2, 8]}}]}}
accuracy: {{dataset: models/data/vectors.npz}}
"""
ENSEMBLE = """\
name: {name}
task: ensemble
accuracy: {{dataset: models/data/sentences.txt, metric: relative_error}}
endpoint: {{instance_type: ml.c7i.large}}
"""
WIRED = """\
steps:
  - {model: tiny}
  - {model: scorer}
outputs: [scores]
"""
REPOSITORY = """\
name: graph
task: tensors
source: {{triton_repository: {{folder: models/graph, sha256: {digest}}}}}
endpoint: {{instance_type: ml.c7i.large}}
"""


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write_ensembles(tree):
    models = tree / "models"
    shutil.copy(FIXTURE / "scorer.onnx", models / "tiny")
    random = np.random.default_rng(0).standard_normal((120, 16)).astype(np.float32)
    np.savez(models / "data" / "vectors.npz", vector=random)
    network = (FIXTURE / "scorer.onnx").read_bytes()
    (models / "scorer.yaml").write_text(SCORER.format(network=sha256(network)))
    (models / "mood.yaml").write_text(ENSEMBLE.format(name="mood") + WIRED)


def write_repository(tree):
    folder = tree / "models" / "graph"
    shutil.copytree(FIXTURE.parent / "triton_repository", folder)
    (folder / "mood").rename(folder / "graph")
    text = REPOSITORY.format(digest=checkpoint_sha256(folder))
    (tree / "models" / "graph.yaml").write_text(text)


def outputs(session, endpoint, tensor):
    answer = session.clients("sagemaker-runtime").invoke_endpoint(
        EndpointName=endpoint,
        Body=json.dumps({"inputs": [tensor]}),
        ContentType="application/json",
    )
    return {item["name"]: item["data"] for item in json.loads(answer["Body"].read())["outputs"]}


def scores(session, endpoint):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["a red train"]}
    return outputs(session, endpoint, tensor)["scores"]


def softmax(values):
    powers = np.exp(values - np.max(values))
    return powers / powers.sum()


def test_ensembles_are_built_after_their_models_and_answer_as_they_do(tiny):
    write_ensembles(tiny.paths.tree)
    write_repository(tiny.paths.tree)
    session = tiny.start()
    requests = engines.missing_engines(session, ("mood",))
    assert [request.target.model.name for request in requests] == ["tiny", "scorer", "mood"]
    waves = [[item.target.model.name for item in wave] for wave in engines.waves(requests)]
    assert waves[-1] == ["mood"] and len(waves) == 2
    deploy_all(session)
    # The weights of tests/fixtures/tiny_embedder/scorer.onnx.
    head = np.random.default_rng(19).standard_normal((16, 3)).astype(np.float32)
    expected = softmax(np.array(vector(session)) @ head)
    assert np.allclose(scores(session, "local-mood"), expected, atol=1e-5)
    (entry,) = read_lock(tiny.lock.parent, "mood").engines.values()
    steps = {
        name: next(iter(read_lock(tiny.lock.parent, name).engines)) for name in ("tiny", "scorer")
    }
    record = entry.manifest.ensemble
    assert {name: step.engine_key for name, step in record.steps.items()} == steps
    assert entry.manifest.accuracy[0].verdict == "pass"
    assert engines.missing_engines(session) == ()
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    assert outputs(session, "local-graph", tensor) == {"label": ["up"]}
    assert "accuracy: not measured" in (tiny.lock.parent / "graph.lock.yaml").read_text()

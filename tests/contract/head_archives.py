"""Archives of models with heads as a build lays them out, and servers that hold several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from container.wire import Array, array_request, arrays_of, image_request
from engine_build.packaging.archive import model_repository
from engine_build.packaging.repository import Repository, repository
from engine_build.packaging.served import Served, member
from local_cloud.containers.server_client import Response
from onboarding.manifest import ImageProcessor, ProfileRecord, TensorRecord
from onboarding.serving_spec import ServingSpec
from tests.contract.conftest import TARGET_HEADER, load, serving
from tests.contract.test_ensemble import STAND_IN, on_a_cpu
from tests.fixtures.tiny_embedder.archive import REPOSITORY, Tiny, write_manifest

PROFILES = (ProfileRecord(batch=(1, 8, 32), sequence=(4, 8, 16)),)
BATCH = 25


def with_stand_in(laid: Repository, model: str, engine: Path) -> Repository:
    """The model repository of a GPU, with its plan stood in for by a network."""
    part = member(model, "engine")
    engine_file, configuration = f"{part}/1/model.onnx", f"{part}/config.pbtxt"
    files = {name: file for name, file in laid.files.items() if name != laid.engine_file}
    files |= {engine_file: engine, f"{part}/1/model.py": STAND_IN}
    files[configuration] = on_a_cpu(str(files[configuration]))
    return replace(laid, files=files, engine_file=engine_file)


@dataclass(frozen=True, kw_only=True)
class HeadModel:
    """One exported model, and what its own library answers."""

    name: str
    folder: Path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What `model_exports` wrote."""
        facts: dict[str, Any] = json.loads((self.folder / "facts.json").read_text())
        return facts

    def served_model(self, model: str) -> Served:
        """The model as clients see it."""
        inputs, outputs = (
            tuple(
                TensorRecord(**(record | {"shape": tuple(record["shape"])})) for record in records
            )
            for records in (self.facts["inputs"], self.facts["outputs"])
        )
        return Served(
            model=model,
            task=self.facts["task"],
            inputs=inputs,
            outputs=outputs,
            profiles=PROFILES,
            max_batch_size=32,
            serving=ServingSpec(),
            activation=self.facts["activation"],
            image_processor=self.image_processor,
        )

    @property
    def image_processor(self) -> ImageProcessor | None:
        """How images become the network's input."""
        facts = self.facts.get("image_processor")
        return None if facts is None else ImageProcessor.model_validate_json(json.dumps(facts))

    def write_archive(self, root: Path, *, is_ensemble: bool = False) -> Path:
        """Write an archive; in an ensemble the plan is stood in for by the network."""
        model = f"{self.name}-ensemble" if is_ensemble else self.name
        served, engine = self.served_model(model), self.folder / "model.onnx"
        tokenizer = None if self.image_processor else self.folder / "tokenizer.json"
        laid = repository(
            served,
            engine,
            tokenizer,
            runtime="tensorrt" if is_ensemble else "onnxruntime",
            code_roots=(REPOSITORY,),
        )
        if is_ensemble:
            laid = with_stand_in(laid, model, engine)
        model_repository(root, laid.files)
        labels = self.facts["labels"]
        tiny = Tiny(network="", served=served, labels=None if labels is None else tuple(labels))
        changes: dict[str, Any] = {
            "engine_file": laid.engine_file,
            "tokenizer_file": laid.tokenizer_file,
        }
        changes["image_processor"] = self.image_processor
        write_manifest(root, tiny, activation=served.activation, **changes)
        return root

    def inputs(self, samples: Any) -> dict[str, Any]:
        """Return the columns of samples as clients send them."""
        import numpy as np

        if self.facts["task"] == "text-ranking":
            columns = np.array(samples, object)
            return {"query": columns[:, :1], "text": columns[:, 1:]}
        return {"text": np.array(samples, object).reshape(-1, 1)}


@dataclass(frozen=True, kw_only=True)
class SeveralModels:
    """Models by their names, of one server or each of its own."""

    send: Callable[[str, bytes, str], Response]
    """Send body and content type of one request to a model."""

    def arrays(
        self, model: HeadModel, samples: Any, *, suffix: str = "", binary: bool = False
    ) -> dict[str, Array]:
        """Return the outputs for samples of one request."""
        request = (
            array_request(model.inputs(samples), binary=binary)
            if model.image_processor is None
            else image_request(samples, binary=binary)
        )
        answer = self.send(f"{model.name}{suffix}", *request)
        assert answer.status == 200, answer.body
        return arrays_of(answer.body, answer.headers["content-type"])


@contextmanager
def several(first: Path, archives: Mapping[str, Path], folder: Path) -> Iterator[SeveralModels]:
    """Start a multi-model Triton that holds an embedder's archive and every one of these."""
    with serving("triton-mme", first, folder) as server:
        for name, archive in archives.items():
            answer = load(server.client, archive, name=name, target=f"{name}/model.tar.gz")
            assert answer.status == 200, answer.body

        def send(name: str, body: bytes, content_type: str) -> Response:
            headers = {TARGET_HEADER: f"{name}/model.tar.gz", "Content-Type": content_type}
            return server.client.request("POST", f"/models/{name}/invoke", body, headers)

        yield SeveralModels(send=send)


@contextmanager
def python_servers(archives: Mapping[str, Path], folder: Path) -> Iterator[SeveralModels]:
    """Start a Python server for each archive."""
    with ExitStack() as running:
        servers = {
            name: running.enter_context(serving("python-server", archive, folder / name))
            for name, archive in archives.items()
        }
        yield SeveralModels(send=lambda name, body, kind: servers[name].ask(body, kind))

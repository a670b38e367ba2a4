"""The pinned source of an engine: a checkpoint folder, or an ONNX file and what lies beside it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import onnx

from engine_build.errors import PublishFailed, SourceFault
from engine_build.onnx_graph.external_data import (
    external_files,
    external_names,
    onnx_sha256,
    refuse_large,
)
from engine_build.sources.source import Bucket, FetchContext, check_digest, fetch_folder, unreadable
from onboarding.checkpoint import CONFIGURATION
from onboarding.source_spec import S3_SCHEME, SourceSpec, split_s3

BESIDE_NETWORK = ("tokenizer.json", "config.json", "preprocessor_config.json")
"""Files beside a network: its tokenizer, its class names, and how images become its input."""


def bucket_network(address: str, bucket: Bucket, folder: Path) -> Path:
    """Return an ONNX file, its data files and the files beside it. Raises SourceFault.

    It keeps its name, which is a part of the digest where data files are.
    """
    name, key = split_s3(address)
    path, store = folder / PurePosixPath(key).name, bucket(f"{S3_SCHEME}{name}")
    try:
        size = store.size(key)
        if size is None:
            raise SourceFault(f"{address} does not exist; upload it, or correct the model file.")
        refuse_large(address, size)
        store.download(key, path)
        for file in _read_external_files(path, beside=False):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            data = str(PurePosixPath(key).parent / file)
            if not store.download(data, folder / file):
                raise SourceFault(
                    f"{address} keeps weights in {file}, and {S3_SCHEME}{name}/{data} does not "
                    "exist; upload it beside the ONNX file."
                )
        for file in BESIDE_NETWORK:
            store.download(str(PurePosixPath(key).with_name(file)), path.with_name(file))
    except PublishFailed as error:
        raise unreadable(error) from error
    return path


CHECKPOINT_FILES = (
    "config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "adapter_config.json",
    "special_tokens_map.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
)
"""What is taken of a repository: no pickles, no code, no copies in other formats."""


def fetch(source: SourceSpec, fetching: FetchContext) -> Path:
    """Return the source a spec pins. Raises SourceFault.

    A folder that transformers reads (config.json, model.safetensors, tokenizer.json), or an ONNX
    file: a text network's tokenizer.json, an image classifier's
    preprocessor_config.json, and a config.json with class names, lie beside it.
    """
    if source.onnx is not None:
        return _onnx_file(source, source.onnx, fetching)
    folder = fetch_folder(source, fetching, CHECKPOINT_FILES)
    if source.huggingface is not None and not (folder / CONFIGURATION).is_file():
        inside = "" if source.path is None else f"{source.path.strip('/')}/"
        raise SourceFault(
            f"{source.huggingface} has no {inside}{CONFIGURATION}; name the checkpoint's folder as "
            "`path`."
        )
    return folder


def _onnx_file(source: SourceSpec, name: str, fetching: FetchContext) -> Path:
    if name.startswith(S3_SCHEME):
        path = bucket_network(name, fetching.bucket, fetching.folder)
    else:
        path = fetching.root / name
        if not path.is_file():
            raise SourceFault(
                f"{name} is no file under {fetching.root}; add it, or correct the model file."
            )
        refuse_large(name, path.stat().st_size)
    files, digest = _read_external_files(path), None
    if files:
        digest, name = onnx_sha256(path), f"{name} with {', '.join(files[:3])}"
    check_digest(path, source.sha256, f"ONNX file {name}", digest)
    return path


def _read_external_files(path: Path, *, beside: bool = True) -> tuple[str, ...]:
    """Return the data files that an ONNX file names; `beside`: each must be there.

    A file that cannot be parsed names none: reading it as a network says so.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:
        return ()
    return external_files(path, model) if beside else external_names(path.name, model)

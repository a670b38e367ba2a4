"""Rules of sources: exactly one, pinned, with what its kind needs, where builds may read it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onboarding.checkpoint import CONFIGURATION, checkpoint_sha256
from onboarding.dataset import Datasets, is_inside
from onboarding.fault import Fault
from onboarding.model_spec import ModelSpec
from onboarding.onnx_header import OnnxHeader
from onboarding.validation import Checked

KINDS = ("python_package", "huggingface", "checkpoint", "onnx")
PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[0-9][A-Za-z0-9.!+_-]*")
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+@[0-9a-f]{40}", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}")
S3_FILE, S3_FOLDER = re.compile(r"s3://[^/]+/.+"), re.compile(r"s3://[^/]+/.+/")
PINS = (
    ("python_package", PACKAGE, "unpinned source: 'source.python_package' has no exact version",
     "name==1.2.3", "add ==<version>"),
    ("huggingface", REPOSITORY, "unpinned source: 'source.huggingface' has no full commit",
     "owner/name@<40 hex digits>", "add @<commit>, as the repository's history shows it"),
    ("path", re.compile(r"(?!/|(.*/)?\.\.(/|$)).*"), "'source.path' leaves the source",
     "a folder inside the package or the repository, such as model",
     "write it relative to the source's root, without .."),
    ("sha256", SHA256, "'source.sha256' is no SHA-256 digest", "64 lower-case hex digits",
     "copy what `sha256sum` prints"),
)  # fmt: skip
"""Keys of a source with their form, and what is wrong with another one."""


def source_is_one_and_pinned(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A version range, a branch, a tag or a file without digest would build something else."""
    source, root = model.spec.source, datasets.root
    yield from kind_faults(model, KINDS)
    yield from pin_faults(model)
    if source.onnx is not None:
        yield from file_faults(model, root, "source.onnx", source.onnx)
        if source.sha256 is None:
            yield _digest_fault(
                model, "onnx", "as `sha256sum` prints it", _network_sha256(model, datasets)
            )
    if source.checkpoint is not None:
        yield from _checkpoint_faults(model, root, source.checkpoint)


def source_fits_the_task(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Pooling, prompts and names of prompts are of embedders; other tensors come as ONNX."""
    source, task = model.spec.source, model.spec.task
    if task == "tensors" and source.onnx is None:
        yield model.fault(
            "task",
            "tensors needs an ONNX file as its source",
            allowed="source.onnx, with its sha256",
            way_out="export the checkpoint, or name the task that it was trained for",
            beside=["source"],
        )
    if source.pooling is not None and (source.onnx is None or task != "text-embedding"):
        yield model.fault(
            "source.pooling",
            "is for ONNX files that give vectors of tokens",
            value=f"task {task}" if source.onnx is not None else "no onnx",
            allowed="source.onnx with task text-embedding; a checkpoint declares its own pooling",
            way_out="take pooling out",
            beside=["task"],
        )
    for key in ("prompts", "default_prompt_name"):
        if getattr(source, key) is not None and task != "text-embedding":
            yield model.fault(
                f"source.{key}",
                "is for text-embedding",
                value=task,
                allowed="task text-embedding",
                way_out=f"take {key} out",
                beside=["task"],
            )


def prompts_have_answers(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """An ONNX file declares no prompts; Triton's cache knows a request by its inputs alone."""
    source = model.spec.source
    name, prompts = source.default_prompt_name, source.prompts or {}
    if name is not None and source.onnx is not None and name not in prompts:
        yield model.fault(
            "source.default_prompt_name",
            "names no prompt",
            allowed=", ".join(prompts) or "a key of source.prompts, which has none",
            way_out="add it to source.prompts, or name one of them",
        )
    if prompts and model.spec.serving.response_cache:
        yield model.fault(
            "serving.response_cache",
            "answers a text from memory, whatever prompt its request names, and 'source.prompts' "
            "has some",
            allowed="response_cache: false, or no prompts",
            way_out="change one of the two",
            beside=["source.prompts"],
        )


def opset_is_of_an_export(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """An ONNX file is taken in the opset that it has."""
    opset = model.spec.engine.opset
    if opset is not None and model.spec.source.onnx is not None:
        yield model.fault(
            "engine.opset",
            "is for sources that the build exports, and 'source.onnx' has an opset of its own",
            allowed="source.checkpoint, source.huggingface or source.python_package",
            way_out="take opset out; for another one export the file again, or convert it with "
            f"onnx.version_converter.convert_version(model, {opset})",
            beside=["source.onnx"],
        )


def kind_faults(file: Checked[Any], kinds: Sequence[str]) -> Iterator[Fault]:
    """Yield the fault of a source of no kind, or of several."""
    given = [kind for kind in kinds if getattr(file.spec.source, kind) is not None]
    if len(given) != 1:
        named = f"names {len(given)} sources: {', '.join(given)}" if given else "names no source"
        places = [f"source.{kind}" for kind in reversed(given)] or ["source"]
        yield file.at(*places).fault(
            f"'source' {named}",
            allowed=f"exactly one of {', '.join(kinds)}",
            way_out="keep exactly one",
        )


def pin_faults(file: Checked[Any]) -> Iterator[Fault]:
    """Yield an open version, a branch, a path that leaves what the digest covers, and no digest."""
    for key, form, what, allowed, way_out in PINS:
        given = getattr(file.spec.source, key)
        if given is not None and not form.fullmatch(given):
            place = file.at(f"source.{key}")
            yield place.fault(what, value=given, allowed=allowed, way_out=way_out)


def file_faults(file: Checked[Any], root: Path, key: str, address: str) -> Iterator[Fault]:
    """Yield what is wrong with the address of a file in S3 or in the tree; not with the file."""
    if S3_FILE.fullmatch(address):
        return
    if "://" in address or not is_inside(root, address):
        yield file.fault(
            key,
            "is neither in S3 nor under the onboarding root",
            allowed="s3://BUCKET/KEY, or a path relative to the onboarding root",
            way_out="copy the file to one of these",
        )
    elif not (root / address).is_file():
        yield file.fault(
            key,
            "is no file under the onboarding root",
            way_out="add the file, or correct the path",
        )


def folder_faults(file: Checked[Any], root: Path, address: str) -> Iterator[Fault]:
    """Yield what is wrong with the address of a checkpoint's folder in S3 or in the tree."""
    inside = "://" not in address and is_inside(root, address) and (root / address).is_dir()
    if not inside and not S3_FOLDER.fullmatch(address):
        yield file.fault(
            "source.checkpoint",
            "is neither a folder in S3 nor one under the onboarding root",
            allowed="s3://BUCKET/PREFIX/, or a path relative to the onboarding root",
            way_out="end the prefix in /, or copy the checkpoint to one of these",
        )


def _checkpoint_faults(model: Checked[ModelSpec], root: Path, address: str) -> Iterator[Fault]:
    faults = tuple(folder_faults(model, root, address))
    yield from faults
    in_tree = not faults and "://" not in address
    is_whole = in_tree and (root / address / CONFIGURATION).is_file()
    if in_tree and not is_whole:
        yield model.fault(
            "source.checkpoint",
            f"holds no {CONFIGURATION}",
            allowed=f"a folder with {CONFIGURATION}, model.safetensors and tokenizer.json",
            way_out="correct the path, or save the checkpoint there with transformers",
        )
    if model.spec.source.sha256 is None:
        digest = checkpoint_sha256(root / address) if is_whole else None
        yield _digest_fault(
            model, "checkpoint", "as `roundhouse init --checkpoint` finds it", digest
        )


def _digest_fault(model: Checked[ModelSpec], key: str, found: str, digest: str | None) -> Fault:
    """Return the fault of a source whose files may be replaced under their names."""
    fault = model.at(f"source.{key}").fault(
        f"unpinned source: 'source.{key}' has no digest",
        value=getattr(model.spec.source, key),
        way_out=f"add `sha256:`, {found}" if digest is None else "add the line below",
    )
    return fault.model_copy(update={"add": None if digest is None else f"  sha256: {digest}"})


def _network_sha256(model: Checked[ModelSpec], datasets: Datasets) -> str | None:
    """Return the digest of an ONNX file; None where data files belong to it, or it is not there."""
    header = datasets.onnx_header(model.spec.source.onnx)
    if not isinstance(header, OnnxHeader) or header.has_external_weights:
        return None
    with (datasets.root / str(model.spec.source.onnx)).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


RULES = (
    source_is_one_and_pinned,
    source_fits_the_task,
    prompts_have_answers,
    opset_is_of_an_export,
)

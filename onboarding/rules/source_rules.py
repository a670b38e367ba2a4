"""Rules of sources: exactly one, pinned, with what its kind needs, where builds may read it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from onboarding.checkpoint import CONFIGURATION, checkpoint_sha256
from onboarding.dataset import is_inside
from onboarding.document import Document, KeyPath, Place
from onboarding.fault import Fault
from onboarding.names import ONNX_PREFIX, artifact_bucket
from onboarding.onnx_header import OnnxHeader
from onboarding.platform import aws_partition
from onboarding.rules.rule import EnvironmentCase, ModelCase, rule
from onboarding.source_spec import SourceSpec
from onboarding.text_generation.spec import GenerationSourceSpec

KINDS = ("python_package", "huggingface", "checkpoint", "onnx")

SHA256 = re.compile(r"[0-9a-f]{64}")


@rule("source")
def source_is_named_once(case: ModelCase) -> Iterator[Fault]:
    """Exactly one of the kinds of source."""
    yield from kind_faults(case.document, case.spec.source, KINDS)


@rule("source")
def source_is_pinned(case: ModelCase) -> Iterator[Fault]:
    """A version range, a branch or a tag would build something else tomorrow."""
    yield from pin_faults(case.document, case.spec.source)


@rule("source")
def onnx_file_is_there(case: ModelCase) -> Iterator[Fault]:
    """In S3, or in the tree, so that a pull request shows its change; a build reads no other."""
    onnx, place = case.spec.source.onnx, case.document.at("source", "onnx")
    if onnx is not None:
        yield from file_faults(case, place, "'source.onnx'", onnx)


@rule("source")
def checkpoint_is_there(case: ModelCase) -> Iterator[Fault]:
    """A folder of the onboarding tree, so that a pull request shows its change, or one in S3."""
    given = case.spec.source.checkpoint
    if given is None or re.fullmatch(r"s3://[^/]+/.+/", given):
        return
    if "://" in given:
        yield case.document.at("source", "checkpoint").fault(
            "'source.checkpoint' is neither a folder in S3 nor one under the onboarding root",
            value=given,
            allowed="s3://BUCKET/PREFIX/, or a path relative to the onboarding root",
            way_out="end the prefix in /, or copy the checkpoint to one of these",
        )
        return
    inside, folder = is_inside(case.datasets.root, given), case.datasets.root / given
    if not inside or not (folder / CONFIGURATION).is_file():
        wrong = (
            f"holds no {CONFIGURATION}"
            if inside and folder.is_dir()
            else "is no folder under the onboarding root"
        )
        yield case.document.at("source", "checkpoint").fault(
            f"'source.checkpoint' {wrong}",
            value=given,
            allowed=f"a folder with {CONFIGURATION}, model.safetensors and tokenizer.json",
            way_out="correct the path, or save the checkpoint there with transformers",
        )


@rule("source")
def checkpoint_has_a_digest(case: ModelCase) -> Iterator[Fault]:
    """Files may be replaced under their names."""
    source = case.spec.source
    if source.checkpoint is not None and source.sha256 is None:
        folder = case.datasets.root / source.checkpoint
        known = (
            is_inside(case.datasets.root, source.checkpoint) and (folder / CONFIGURATION).is_file()
        )
        fault = case.document.at("source", "checkpoint").fault(
            "unpinned source: 'source.checkpoint' has no digest",
            value=source.checkpoint,
            way_out="add the line below"
            if known
            else "add `sha256:`, as `roundhouse init --checkpoint` finds it",
        )
        yield _with_digest(fault, checkpoint_sha256(folder) if known else None)


@rule("source")
def onnx_has_a_digest(case: ModelCase) -> Iterator[Fault]:
    """A file may be replaced under its name."""
    onnx, root = case.spec.source.onnx, case.datasets.root
    if onnx is not None and case.spec.source.sha256 is None:
        header = None if "://" in onnx else case.datasets.onnx_header(onnx)
        # The digest of a network with data files is that of all.
        known = isinstance(header, OnnxHeader) and not header.has_external_weights
        fault = case.document.at("source", "onnx").fault(
            "unpinned source: 'source.onnx' has no digest",
            value=onnx,
            way_out="add the line below" if known else "add `sha256:`, as `sha256sum` prints it",
        )
        yield _with_digest(fault, _file_sha256(root / onnx) if known else None)


@rule("engine", "source")
def opset_is_of_an_exported_source(case: ModelCase) -> Iterator[Fault]:
    """An ONNX file is taken in the opset that it has."""
    opset = case.spec.engine.opset
    if opset is not None and case.spec.source.onnx is not None:
        yield case.document.at_change(("engine", "opset"), ("source", "onnx")).fault(
            "'engine.opset' is for sources that the build exports, and 'source.onnx' has an opset "
            "of its own",
            value=opset,
            allowed="source.checkpoint, source.huggingface or source.python_package",
            way_out="take opset out; for another one export the file again, or convert it with "
            f"onnx.version_converter.convert_version(model, {opset})",
        )


@rule("source", "task")
def pooling_is_of_an_onnx_embedder(case: ModelCase) -> Iterator[Fault]:
    """A checkpoint says itself how it pools."""
    source, task = case.spec.source, case.spec.task
    if source.pooling is not None and (source.onnx is None or task != "text-embedding"):
        yield case.document.at_change(("source", "pooling"), ("task",)).fault(
            "'source.pooling' is for ONNX files that give vectors of tokens",
            value=f"task {task}" if source.onnx is not None else "no onnx",
            allowed="source.onnx with task text-embedding; a checkpoint declares its own pooling",
            way_out="take pooling out",
        )


@rule("source", "task")
def prompts_are_of_an_embedder(case: ModelCase) -> Iterator[Fault]:
    """Only embedders put a prompt before a text."""
    for key in ("prompts", "default_prompt_name"):
        if getattr(case.spec.source, key) is not None and case.spec.task != "text-embedding":
            yield case.document.at_change(("source", key), ("task",)).fault(
                f"'source.{key}' is for text-embedding",
                value=case.spec.task,
                allowed="task text-embedding",
                way_out=f"take {key} out",
            )


@rule("source")
def default_prompt_of_an_onnx_file_is_given(case: ModelCase) -> Iterator[Fault]:
    """An ONNX file declares no prompts; those of a checkpoint are known when it is built."""
    source = case.spec.source
    name, prompts = source.default_prompt_name, source.prompts or {}
    if name is not None and source.onnx is not None and name not in prompts:
        yield case.document.at("source", "default_prompt_name").fault(
            "'source.default_prompt_name' names no prompt",
            value=name,
            allowed=", ".join(prompts) or "a key of source.prompts, which has none",
            way_out="add it to source.prompts, or name one of them",
        )


@rule("source", "serving")
def cache_is_for_one_prompt(case: ModelCase) -> Iterator[Fault]:
    """Triton's cache knows a request by its inputs; a prompt's name is a parameter."""
    if case.spec.source.prompts and case.spec.serving.response_cache:
        yield case.document.at_change(("serving", "response_cache"), ("source", "prompts")).fault(
            "'serving.response_cache' answers a text from memory, whatever prompt its request "
            "names, and 'source.prompts' has some",
            value=True,
            allowed="response_cache: false, or no prompts",
            way_out="change one of the two",
        )


def _with_digest(fault: Fault, digest: str | None) -> Fault:
    return fault if digest is None else fault.model_copy(update={"add": f"  sha256: {digest}"})


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[0-9][A-Za-z0-9.!+_-]*")
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+@[0-9a-f]{40}", re.ASCII)


def kind_faults(
    document: Document, source: SourceSpec | GenerationSourceSpec, kinds: Sequence[str]
) -> Iterator[Fault]:
    """Yield the fault of a source of no kind, or of several."""
    given = [kind for kind in kinds if getattr(source, kind) is not None]
    if len(given) != 1:
        named = f"names {len(given)} sources: {', '.join(given)}" if given else "names no source"
        places: list[KeyPath] = [("source", kind) for kind in reversed(given)]
        yield document.at_change(*(places or [("source",)])).fault(
            f"'source' {named}",
            allowed=f"exactly one of {', '.join(kinds)}",
            way_out="keep exactly one",
        )


def pin_faults(document: Document, source: SourceSpec | GenerationSourceSpec) -> Iterator[Fault]:
    """Yield an open version, a branch, a path that leaves what the digest covers, and no digest."""
    package, repository, path = source.python_package, source.huggingface, source.path
    if package is not None and not PACKAGE.fullmatch(package):
        yield document.at("source", "python_package").fault(
            "unpinned source: 'source.python_package' has no exact version",
            value=package,
            allowed="name==1.2.3",
            way_out="add ==<version>",
        )
    if repository is not None and not REPOSITORY.fullmatch(repository):
        yield document.at("source", "huggingface").fault(
            "unpinned source: 'source.huggingface' has no full commit",
            value=repository,
            allowed="owner/name@<40 hex digits>",
            way_out="add @<commit>, as the repository's history shows it",
        )
    if path is not None and (
        PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts
    ):
        yield document.at("source", "path").fault(
            "'source.path' leaves the source",
            value=path,
            allowed="a folder inside the package or the repository, such as model",
            way_out="write it relative to the source's root, without ..",
        )
    if source.sha256 is not None and not SHA256.fullmatch(source.sha256):
        yield document.at("source", "sha256").fault(
            "'source.sha256' is no SHA-256 digest",
            value=source.sha256,
            allowed="64 lower-case hex digits",
            way_out="copy what `sha256sum` prints",
        )


def file_faults(case: ModelCase, place: Place, what: str, file: str) -> Iterator[Fault]:
    """Yield what is wrong with the address of a file in S3 or in the tree; not with the file."""
    root = case.datasets.root
    if re.fullmatch(r"s3://[^/]+/.+", file):
        return
    if "://" in file or not is_inside(root, file):
        yield place.fault(
            f"{what} is neither in S3 nor under the onboarding root",
            value=file,
            allowed="s3://BUCKET/KEY, or a path relative to the onboarding root",
            way_out="copy the file to one of these",
        )
    elif not (root / file).is_file():
        yield place.fault(
            f"{what} is no file under the onboarding root",
            value=file,
            way_out="add the file, or correct the path",
        )


@rule("source_buckets", "name", "account", "region")
def source_buckets_are_distinct(case: EnvironmentCase) -> Iterator[Fault]:
    """Each is another part of S3, and not the environment's own bucket."""
    own, seen = artifact_bucket(case.spec), set()
    for index, bucket in enumerate(case.spec.source_buckets):
        place = case.document.at("source_buckets", index)
        if bucket.bucket == own:
            yield place.fault(
                "'source_buckets' names the environment's own bucket",
                value=bucket.address,
                way_out=f"leave it out: builds read s3://{own}/{ONNX_PREFIX}/ already",
            )
        elif bucket.address in seen:
            yield place.fault(
                "'source_buckets' names one place twice",
                value=bucket.address,
                way_out="leave the second out",
            )
        seen.add(bucket.address)


@rule("source_buckets", "region")
def source_keys_are_of_the_region(case: EnvironmentCase) -> Iterator[Fault]:
    """S3 decrypts in the bucket's region, and roles may use a key through S3 there alone."""
    for index, bucket in enumerate(case.spec.source_buckets):
        key = bucket.kms_key_arn
        if key is not None and key.split(":")[3] != case.spec.region:
            yield case.document.at("source_buckets", index, "kms_key_arn").fault(
                "the key of a source bucket is of another region than the environment",
                value=key,
                allowed=f"a key of {case.spec.region}",
                way_out="copy the sources to a bucket of this region",
            )


@rule("source_secrets", "account", "region")
def secrets_are_whole_arns_of_the_region(case: EnvironmentCase) -> Iterator[Fault]:
    """Roles name a secret exactly, and builds ask Secrets Manager in their own region."""
    spec = case.spec
    form = f"arn:{aws_partition(spec.region)}:secretsmanager:{spec.region}:"
    for path, secret in spec.source_secrets.secrets.items():
        place = case.document.at("source_secrets", *path.split("."), "secret_arn")
        pattern = rf"{re.escape(form)}([0-9]{{12}}):secret:.+-[A-Za-z0-9]{{6}}"
        found = re.fullmatch(pattern, secret.secret_arn)
        if found is None:
            yield place.fault(
                f"the secret of 'source_secrets.{path}' is no whole ARN of this region",
                value=secret.secret_arn,
                allowed=f"{form}ACCOUNT:secret:NAME-XXXXXX",
                way_out="copy the ARN from the secret's page; a secret of another region can be "
                "replicated to this one",
            )
        elif found[1] != spec.account and secret.kms_key_arn is None:
            yield place.fault(
                f"the secret of 'source_secrets.{path}' is of another account, and no key is named",
                value=secret.secret_arn,
                allowed="a secret that a customer key encrypts, with its `kms_key_arn`: other "
                "accounts cannot use aws/secretsmanager",
                way_out="name the key, or make the secret in the environment's account",
            )


@rule("source_secrets", "region")
def keys_of_secrets_are_of_the_region(case: EnvironmentCase) -> Iterator[Fault]:
    """Secrets Manager decrypts in the region of the secret."""
    for path, secret in case.spec.source_secrets.secrets.items():
        key = secret.kms_key_arn
        if key is not None and key.split(":")[3] != case.spec.region:
            place = case.document.at("source_secrets", *path.split("."), "kms_key_arn")
            yield place.fault(
                f"the key of 'source_secrets.{path}' is of another region than the environment",
                value=key,
                allowed=f"a key of {case.spec.region}",
                way_out="name the key that encrypts the secret in this region",
            )

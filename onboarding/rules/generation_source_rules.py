"""Rules of a text generator's source: pinned, whole, and of one config.json and its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.checkpoint import checkpoint_sha256
from onboarding.dataset import is_inside
from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule, rules_of
from onboarding.rules.source_pins import (
    REPOSITORY,
    package_faults,
    path_faults,
    repository_faults,
)
from onboarding.text_generation.checkpoint import CheckpointError
from onboarding.text_generation.kv_cache import ArchitectureError, cache_layers
from onboarding.text_generation.platforms import quantization_methods
from onboarding.text_generation.weights import mismatches

KINDS = ("huggingface", "python_package", "checkpoint")
LARGEST_DIGEST_BYTES = 256 << 20
"""Folders above it are not read whole by `check`, which is to answer within two seconds."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
S3_FOLDER = re.compile(r"s3://[^/]+/.+/")


@rule("source")
def generator_source_is_named_once(case: GenerationCase) -> Iterator[Fault]:
    """Exactly one of the three kinds of source."""
    given = [kind for kind in KINDS if getattr(case.spec.source, kind) is not None]
    if len(given) != 1:
        named = f"names {len(given)} sources: {', '.join(given)}" if given else "names no source"
        yield case.document.at("source", *given[1:2]).fault(
            f"'source' {named}", allowed=f"exactly one of {', '.join(KINDS)}",
            way_out="keep exactly one",
        )  # fmt: skip


@rule("source")
def generator_source_is_pinned(case: GenerationCase) -> Iterator[Fault]:
    """A branch, a version range or a folder without digest may change."""
    source = case.spec.source
    yield from package_faults(case.document, source.python_package)
    yield from repository_faults(case.document, source.huggingface)
    if source.sha256 is not None and not _SHA256.fullmatch(source.sha256):
        yield case.document.at("source", "sha256").fault(
            "'source.sha256' is no SHA-256",
            value=source.sha256,
            allowed="64 hex digits",
            way_out="copy what `sha256sum` prints",
        )
    if source.checkpoint is not None and source.sha256 is None:
        yield case.document.at("source", "checkpoint").fault(
            "unpinned source: 'source.checkpoint' needs 'source.sha256'",
            value=source.checkpoint,
            way_out="add the digest of the folder's sorted `sha256sum` lines",
        )


@rule("source")
def remote_code_is_of_a_pinned_commit(case: GenerationCase) -> Iterator[Fault]:
    """Code of a repository runs with the endpoint's rights, so it must be code that was read."""
    source = case.spec.source
    pinned = REPOSITORY.fullmatch(source.huggingface or "")
    if source.trust_remote_code and not pinned:
        yield case.document.at("source", "trust_remote_code").fault(
            "'source.trust_remote_code' runs code of a source without a pinned commit",
            value="true",
            allowed="source.huggingface: owner/name@<40 hex digits>",
            way_out="pin the commit whose code you read, or take the line out",
        )


@rule("source")
def generator_path_stays_in_the_source(case: GenerationCase) -> Iterator[Fault]:
    """The path lies inside the source, so that its digest covers it."""
    yield from path_faults(case.document, case.spec.source.path)


@rule("source")
def generator_checkpoint_is_there(case: GenerationCase) -> Iterator[Fault]:
    """A folder of the onboarding tree, or a prefix of S3 that ends in /."""
    given = case.spec.source.checkpoint
    if given is None or S3_FOLDER.fullmatch(given):
        return
    inside = "://" not in given and is_inside(case.root, given)
    if not inside or not (case.root / given).is_dir():
        yield case.document.at("source", "checkpoint").fault(
            "'source.checkpoint' is neither a prefix in S3 nor a folder under the onboarding root",
            value=given,
            allowed="s3://BUCKET/PREFIX/, or a path relative to the onboarding root",
            way_out="end the prefix in /, or copy the checkpoint to one of these",
        )


@rule("source")
def generator_checkpoint_is_whole(case: GenerationCase) -> Iterator[Fault]:
    """Every shard is there, its header can be read, and config.json fits the tensors."""
    key = "checkpoint" if case.spec.source.headers is None else "headers"
    value = getattr(case.spec.source, key)
    place = case.document.at("source", key)
    if isinstance(case.checkpoint, CheckpointError):
        yield place.fault(
            f"'source.{key}': {case.checkpoint.what}", value=value, way_out=case.checkpoint.way_out
        )
    elif case.checkpoint is not None:
        problem = mismatches(case.checkpoint)
        if problem is not None:
            yield place.fault(
                f"'source.{key}': config.json and the tensors disagree: {problem}",
                value=value,
                way_out="fetch or save the checkpoint again, both from one revision",
            )


@rule("source")
def generator_answers_chat_messages(case: GenerationCase) -> Iterator[Fault]:
    """Without a chat template every request with messages is refused."""
    if case.headers is None or case.headers.has_chat_template is not False:
        return
    key = "checkpoint" if case.spec.source.headers is None else "headers"
    yield case.document.at("source", key).fault(
        f"'source.{key}': its tokenizer has no chat template, so that it cannot answer messages",
        value=getattr(case.spec.source, key),
        way_out="choose the model's instruct version, or add chat_template.jinja to the checkpoint",
    )


@rule("source")
def generator_digest_is_the_folders(case: GenerationCase) -> Iterator[Fault]:
    """The digest pins the files; larger folders are compared when they are copied."""
    source = case.spec.source
    folder = case.root / (source.checkpoint or "")
    if source.checkpoint is None or source.sha256 is None or case.headers is None:
        return
    if not is_inside(case.root, source.checkpoint) or not folder.is_dir():
        return
    if case.headers.bytes <= LARGEST_DIGEST_BYTES:
        digest = checkpoint_sha256(folder)
        if digest != source.sha256 and _SHA256.fullmatch(source.sha256):
            yield case.document.at("source", "sha256").fault(
                "'source.sha256' is not the checkpoint's digest",
                value=source.sha256,
                allowed=digest,
                way_out="restore the files, or write the digest that they have",
            )


@rule("source")
def cache_of_the_checkpoint_is_known(case: GenerationCase) -> Iterator[Fault]:
    """Layers whose state is no key-value cache cannot be planned for."""
    if case.headers is None:
        return
    try:
        cache_layers(case.headers.text_config)
    except ArchitectureError as error:
        key = "checkpoint" if case.spec.source.headers is None else "headers"
        yield case.document.at("source", key).fault(
            f"'source.{key}': its KV cache cannot be counted: {error}",
            allowed="full, grouped, multi-query, latent and sliding-window attention",
            way_out="choose another checkpoint, or correct its config.json",
        )


@rule("source", "context")
def length_is_within_the_checkpoints(case: GenerationCase) -> Iterator[Fault]:
    """Positions beyond those that a model was trained for give text without sense."""
    if case.headers is None:
        return
    longest = case.headers.text_config.get("max_position_embeddings")
    wanted = case.spec.context.max_model_len
    if isinstance(longest, int) and wanted > longest:
        yield case.document.at("context", "max_model_len").fault(
            "'context.max_model_len' is above the checkpoint's max_position_embeddings",
            value=wanted,
            allowed=f"at most {longest}",
            way_out="lower it, or choose a checkpoint of a longer context",
        )


@rule("source", "quantization")
def quantized_checkpoint_stays_as_it_is(case: GenerationCase) -> Iterator[Fault]:
    """Weights that are quantized already cannot be quantized once more."""
    names = [name for name in case.spec.quantization.schemes if name not in ("bf16", "fp16")]
    if case.headers is not None and case.headers.is_quantized and names:
        yield case.document.at("quantization", "schemes").fault(
            "'quantization.schemes' would quantize a checkpoint that config.json says is "
            "quantized already",
            value=", ".join(names),
            allowed="[bf16]: its weights are served as they are",
            way_out="take the schemes out, or name the checkpoint in 16 bits",
        )


@rule("source", "serving")
def quantization_is_the_engines(case: GenerationCase) -> Iterator[Fault]:
    """The server exits for a checkpoint that is quantized in a way that it does not load."""
    quantization = None if case.headers is None else case.headers.quantization
    known = quantization_methods(case.engine_version)
    if quantization is None or known is None or "quant_method" not in quantization:
        return  # Without one vLLM finds ModelOpt's by its producer.
    method = str(quantization["quant_method"]).lower()
    if method not in known:
        key = "checkpoint" if case.spec.source.headers is None else "headers"
        yield case.document.at("source", key).fault(
            f"'source.{key}': config.json names quantization method {method}, which vLLM "
            f"{case.engine_version} does not load",
            value=getattr(case.spec.source, key),
            allowed=comma_list(known),
            way_out="name the checkpoint in 16 bits, and its format in quantization.schemes",
        )


RULES = rules_of(globals())

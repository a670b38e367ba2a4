"""Rules of LoRA adapters: files of the tree that the engine serves, and that fit the base model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.dataset import is_inside
from onboarding.document import Place
from onboarding.fault import Fault
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule, rules_of
from onboarding.text_generation.adapter import (
    Adapter,
    adapter_problem,
    architecture_without_adapters,
    read_adapter,
)
from onboarding.text_generation.checkpoint import CheckpointError
from onboarding.text_generation.spec import AdapterSpec

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@rule("serving")
def adapters_are_folders_of_the_tree(case: GenerationCase) -> Iterator[Fault]:
    """A deployment publishes folders of the tree; the container itself has no network."""
    for index, adapter in enumerate(case.spec.serving.adapters):
        if not _is_folder(case, adapter):
            yield _source(case, index).fault(
                "'source' of an adapter is no folder under the onboarding root, and no other is "
                "published",
                value=adapter.source,
                allowed="a path relative to the onboarding root",
                way_out="copy the adapter's files into a folder of the tree, and commit them",
            )


@rule("serving", "endpoint")
def adapters_have_a_component(case: GenerationCase) -> Iterator[Fault]:
    """SageMaker loads an adapter as an inference component beside its base's."""
    if case.spec.serving.adapters and case.spec.endpoint.kind != "inference-component":
        yield case.document.at("serving", "adapters").fault(
            "adapters are inference components, and 'endpoint.kind' is model",
            allowed="endpoint.kind: inference-component",
            way_out="change the kind, or merge the adapter into the model",
        )


@rule("serving")
def adapters_are_whole(case: GenerationCase) -> Iterator[Fault]:
    """What vLLM refuses while it runs, or would serve otherwise than it was trained, is refused."""
    for index, found in _adapters(case):
        source = case.spec.serving.adapters[index].source
        if isinstance(found, CheckpointError):
            yield _source(case, index).fault(
                f"'source' of an adapter: {found.what}", value=source, way_out=found.way_out
            )
            continue
        declared = case.spec.serving.adapters[index].rank
        ranks = {found.rank, *(shape[0] for shape, _ in found.modules.values())}
        if max(ranks) > declared:
            yield case.document.at("serving", "adapters", index).fault(
                f"its matrices have rank {max(ranks)}, above the rank that the engine is started "
                "with",
                value=declared,
                allowed=f"{max(ranks)} or more, at most 512",
                way_out=f"write `rank: {max(ranks)}`",
            )


@rule("serving", "source")
def adapters_fit_their_base(case: GenerationCase) -> Iterator[Fault]:
    """An adapter of another model gives text without sense, or changes nothing."""
    architecture = None if case.headers is None else architecture_without_adapters(case.headers)
    if architecture is not None and case.spec.serving.adapters:
        yield case.document.at("serving", "adapters").fault(
            "vLLM takes no adapters for the base model's architecture",
            value=architecture,
            way_out="merge each adapter into the model, or choose another base",
        )
        return
    base = (case.spec.source.huggingface or "").partition("@")[0]
    for index, found in _adapters(case):
        if isinstance(found, CheckpointError):
            continue
        named = found.base_model
        is_name = named is not None and _HUB_NAME.fullmatch(named) is not None
        if base and named is not None and is_name and named.lower() != base.lower():
            yield _source(case, index).fault(
                f"the adapter was trained on {named}, and 'source.huggingface' is {base}",
                value=case.spec.serving.adapters[index].source,
                way_out="serve it beside its own base; where both are one model, correct "
                "base_model_name_or_path in adapter_config.json",
            )
            continue
        problem = None if case.headers is None else adapter_problem(found, case.headers)
        if problem is not None:
            yield _source(case, index).fault(
                f"the adapter does not fit the base model: {problem}",
                value=case.spec.serving.adapters[index].source,
                way_out="serve it beside the model that it was trained on",
            )


def _is_folder(case: GenerationCase, adapter: AdapterSpec) -> bool:
    return is_inside(case.root, adapter.source) and (case.root / adapter.source).is_dir()


def _source(case: GenerationCase, index: int) -> Place:
    return case.document.at("serving", "adapters", index, "source")


def _adapters(case: GenerationCase) -> Iterator[tuple[int, Adapter | CheckpointError]]:
    """Yield the place of each adapter that is a folder, with its files or what is wrong."""
    for index, adapter in enumerate(case.spec.serving.adapters):
        if not _is_folder(case, adapter):
            continue
        try:
            yield index, read_adapter(case.root / adapter.source)
        except CheckpointError as error:
            yield index, error


RULES = rules_of(globals())

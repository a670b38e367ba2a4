"""One rule: a small pure function over one case, and the sections of the spec that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from onboarding.dataset import Datasets
from onboarding.document import Document
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.values import Server

CaseT = TypeVar("CaseT")


@dataclass(frozen=True, kw_only=True)
class ModelCase:
    """One model, as its file says or as one environment overrides it."""

    spec: ModelSpec
    document: Document
    datasets: Datasets


@dataclass(frozen=True, kw_only=True)
class EndpointCase:
    """One endpoint, a model's own or a shared one; the document is the endpoint's part of its file."""

    spec: EndpointSpec
    document: Document


@dataclass(frozen=True, kw_only=True)
class EnvironmentCase:
    """One environment."""

    spec: EnvironmentSpec
    document: Document
    is_inside_root: Callable[[str], bool]


@dataclass(frozen=True, kw_only=True)
class PlacementCase:
    """One endpoint on one environment's hardware and platform; the paths are those of the document."""

    environment: EnvironmentSpec
    environment_document: Document
    platform: ServingPlatform
    instance: InstanceType
    document: Document
    instance_path: tuple[str, ...]
    server: Server
    server_path: tuple[str, ...]
    multi_model: bool


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """One model on the hardware of the endpoint that serves it."""

    spec: ModelSpec
    document: Document
    platform: ServingPlatform
    instance: InstanceType


@dataclass(frozen=True)
class Rule(Generic[CaseT]):
    """A rule, by name, and the sections without which it has nothing to say."""

    name: str
    needs: frozenset[str]
    faults: Callable[[CaseT], Iterator[Fault]]


def rule(*needs: str) -> Callable[[Callable[[CaseT], Iterator[Fault]]], Rule[CaseT]]:
    """Makes a rule of a function that yields faults; it runs only when every section in `needs` is valid."""

    def decorated(faults: Callable[[CaseT], Iterator[Fault]]) -> Rule[CaseT]:
        return Rule(faults.__name__, frozenset(needs), faults)

    return decorated


def applied(rules: Iterable[Rule[CaseT]], case: CaseT, sections: frozenset[str]) -> Iterator[Fault]:
    """The faults that every rule finds whose sections are all valid."""
    for each in rules:
        if each.needs <= sections:
            yield from each.faults(case)

"""One rule: a small pure function over one case, and the sections of the spec that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Generic, Literal, TypeVar

from onboarding.dataset import Datasets
from onboarding.document import Document, KeyPath
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.hosting_spec import ScalingSpec
from onboarding.model_spec import EndpointSpec, JoinSpec, ModelSpec
from onboarding.onnx_header import OnnxHeader
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.shared_library import SharedLibrary
from onboarding.validation import Checked
from onboarding.values import Server

CaseT = TypeVar("CaseT")


@dataclass(frozen=True, kw_only=True)
class ModelCase:
    """One model, as its file says or as one environment overrides it."""

    spec: ModelSpec
    document: Document
    datasets: Datasets

    @property
    def onnx_header(self) -> OnnxHeader | str | None:
        """The header of `source.onnx`, or what is wrong with it; None for one beyond the tree."""
        onnx = self.spec.source.onnx
        return None if onnx is None or "://" in onnx else self.datasets.onnx_header(onnx)


@dataclass(frozen=True, kw_only=True)
class EndpointCase:
    """One endpoint, a model's own or a shared one; the document is its part of the file."""

    spec: EndpointSpec
    document: Document
    multi_model: bool = False


@dataclass(frozen=True, kw_only=True)
class ScalingCase:
    """Scaling of an endpoint or of a joining model; the document is the endpoint's part."""

    scaling: ScalingSpec
    document: Document
    of: Literal["an endpoint of one model", "a multi-model endpoint", "a model that joins another"]


@dataclass(frozen=True, kw_only=True)
class JoinCase:
    """One model that joins another's endpoint, and what else the environment has."""

    name: str
    spec: JoinSpec
    model: ModelSpec
    document: Document
    models: Mapping[str, Checked[ModelSpec]]
    shared_endpoints: tuple[str, ...]
    unread: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    """Models that the environment does not deploy."""

    @property
    def other(self) -> Checked[ModelSpec] | None:
        """The model that is joined; None when there is none of that name."""
        return self.models.get(self.spec.joins)


@dataclass(frozen=True, kw_only=True)
class JoiningModel:
    """One model that joins an endpoint; the document is its whole file."""

    name: str
    spec: JoinSpec
    document: Document


@dataclass(frozen=True, kw_only=True)
class VariantsCase:
    """One endpoint, and the models that join it; the document is the endpoint's part."""

    name: str
    spec: EndpointSpec
    document: Document
    joined: tuple[JoiningModel, ...]

    @property
    def sharing(self) -> tuple[JoiningModel, ...]:
        """Those that take a share of the traffic."""
        return tuple(model for model in self.joined if model.spec.role == "variant")

    @property
    def shadows(self) -> tuple[JoiningModel, ...]:
        """Those that get a copy of the traffic."""
        return tuple(model for model in self.joined if model.spec.role == "shadow")


@dataclass(frozen=True, kw_only=True)
class EnvironmentCase:
    """One environment."""

    spec: EnvironmentSpec
    document: Document
    is_inside_root: Callable[[str], bool]


@dataclass(frozen=True, kw_only=True)
class PlacementCase:
    """One endpoint on one environment's hardware and platform; paths are of the document."""

    environment: EnvironmentSpec
    environment_document: Document
    platform: ServingPlatform
    instance: InstanceType
    document: Document
    instance_path: KeyPath
    server: Server
    server_path: tuple[str, ...]
    multi_model: bool


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """One model on one instance type that serves it; the path is of the model's document."""

    spec: ModelSpec
    document: Document
    platform: ServingPlatform
    instance: InstanceType
    instance_path: KeyPath = ("endpoint", "instance_type")
    instances: tuple[InstanceType, ...]
    """Every instance type that serves the model there."""
    server: Server = "triton"
    multi_model: bool = False
    has_signers: bool = False
    """True where endpoints take signed engines alone."""
    driver: int | None = None
    """NVIDIA's, of the environment's host image; None where it is not known."""
    is_called: bool = False
    """True where an ensemble calls the model."""
    library: Callable[[str], SharedLibrary | str | None] = lambda path: None
    """A shared library of the tree, or what is wrong with it."""
    root: Path = Path()
    """Of the onboarding tree."""


@dataclass(frozen=True)
class Rule(Generic[CaseT]):
    """A rule, by name, the sections that it needs, and the name of its kind of case."""

    name: str
    needs: frozenset[str]
    faults: Callable[[CaseT], Iterator[Fault]]
    case: str


def rule(*needs: str) -> Callable[[Callable[[CaseT], Iterator[Fault]]], Rule[CaseT]]:
    """Make a rule of a function that yields faults of its `case` and reads the sections `needs`."""

    def decorated(faults: Callable[[CaseT], Iterator[Fault]]) -> Rule[CaseT]:
        return Rule(faults.__name__, frozenset(needs), faults, faults.__annotations__["case"])

    return decorated


def rules_of(case: type[CaseT], *modules: ModuleType) -> tuple[Rule[CaseT], ...]:
    """Return the rules over one kind of case that modules define, in their order."""
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Rule) and value.case == case.__name__
    )


def apply_rules(
    rules: Iterable[Rule[CaseT]], case: CaseT, sections: frozenset[str]
) -> Iterator[Fault]:
    """The faults that every rule finds whose sections are all valid."""
    for checked_rule in rules:
        if checked_rule.needs <= sections:
            yield from checked_rule.faults(case)

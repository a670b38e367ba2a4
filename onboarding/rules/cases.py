"""What rules judge, and how they run: a rule yields the faults of one file, or of a case.

A case is an endpoint, an engine or a text generator on the hardware and platform of an environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from onboarding.dataset import Datasets, is_inside
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import EnvironmentView, serving_server, shared_endpoint_name
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, EnsembleSpec, ModelSpec
from onboarding.platform import (
    InstanceType,
    ServingPlatform,
    host_images,
    instance_types,
    serving_platforms,
)
from onboarding.prices import price
from onboarding.text_generation.checkpoint import (
    CONFIGURATION,
    Checkpoint,
    CheckpointError,
    read_folder,
    read_headers_file,
)
from onboarding.text_generation.planner import Request
from onboarding.text_generation.platforms import GenerationPlatform, generation_platforms
from onboarding.text_generation.spec import GenerationSourceSpec, TextGenerationSpec
from onboarding.validation import Checked, SpecT_co
from onboarding.values import Server


@dataclass(frozen=True, kw_only=True)
class PlacementCase(Generic[SpecT_co]):
    """One endpoint on one environment's hardware and platform; paths are of the file."""

    environment: Checked[EnvironmentSpec]
    platform: ServingPlatform
    instance: InstanceType
    file: Checked[SpecT_co]
    instance_path: str
    server: Server
    multi_model: bool


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """One model on one instance type that serves it; the path is of the model's file."""

    model: Checked[ModelSpec]
    datasets: Datasets
    platform: ServingPlatform
    instance: InstanceType
    instance_path: str
    instances: tuple[InstanceType, ...]
    """Every instance type that serves the model there."""
    server: Server
    multi_model: bool
    has_signers: bool
    """True where endpoints take signed engines alone."""
    driver: int | None
    """NVIDIA's, of the environment's host image; None where it is not known."""
    is_called: bool
    """True where an ensemble calls the model."""

    @property
    def hardware(self) -> str:
        """The instance type in words."""
        instance = self.instance
        if not instance.is_gpu:
            return f"{instance.name} is a CPU"
        return f"{instance.name} ({instance.gpu}) has {instance.compute_capability}"


def faults_of(rules: Iterable[Callable[..., Iterator[Fault]]], *arguments: Any) -> Iterator[Fault]:
    """Yield the faults that rules find."""
    for rule in rules:
        yield from rule(*arguments)


def placements(view: EnvironmentView) -> Iterator[PlacementCase[Any]]:
    """Return every instance type of every endpoint, where type and platform are known."""
    for name, endpoint in view.own_endpoints.items():
        model = view.models[name]
        types = endpoint_types(endpoint, "endpoint.")
        yield from _placements(view, model, types, model.spec.serving.server)
    for name, join in view.joins.items():
        first = view.models.get(join.joins, view.models[name])
        yield from _placements(
            view, view.models[name], joined_type(view, name), first.spec.serving.server
        )
    for shared in view.endpoints.values():
        types, server = own_type(shared, ""), shared.spec.server
        yield from _placements(view, shared, types, server, multi_model=True)


def _placements(
    view: EnvironmentView,
    file: Checked[ModelSpec] | Checked[EndpointSpec],
    placed: tuple[Placed, ...],
    server: Server,
    *,
    multi_model: bool = False,
) -> Iterator[PlacementCase[Any]]:
    platform = _platform(view)
    for path, instance in placed if platform is not None else ():
        assert platform is not None
        yield PlacementCase(
            environment=view.environment,
            platform=platform,
            instance=instance,
            file=file,
            instance_path=path,
            server=server,
            multi_model=multi_model,
        )


def engine_cases(view: EnvironmentView, datasets: Datasets) -> Iterator[EngineCase]:
    """Return every model on every instance type that serves it or an ensemble that calls it."""
    platform, environment = _platform(view), view.environment
    if platform is None:
        return
    for name, model in view.models.items():
        if isinstance(model.spec, EnsembleSpec):
            continue
        users = (name, *view.ensembles_of(name))
        placed = tuple(place for user in users for place in serving_types(view, user))
        server, multi_model = serving_server(view, name)
        for path, instance in placed:
            yield EngineCase(
                model=model,
                datasets=datasets,
                platform=platform,
                instance=instance,
                instance_path=path,
                instances=tuple(other for _, other in placed),
                server=server,
                multi_model=multi_model,
                has_signers=bool(environment.spec.trusted_signers),
                driver=host_driver(view, platform),
                is_called=len(users) > 1,
            )


def _platform(view: EnvironmentView) -> ServingPlatform | None:
    return serving_platforms().get(view.environment.spec.platform)


Placed = tuple[str, InstanceType]
"""Where a file names an instance type that has a row."""


def serving_types(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """Every instance type that serves a model, and where its file says so."""
    if name in view.own_endpoints:
        return endpoint_types(view.own_endpoints[name], "endpoint.")
    if name in view.joins:
        if view.joins[name].instance_type is not None:
            return joined_type(view, name)
        inherited: Checked[EndpointSpec] | None = view.own_endpoints.get(view.joins[name].joins)
    else:
        inherited = view.endpoints.get(shared_endpoint_name(view.models[name]) or "")
    return () if inherited is None else own_type(inherited, "endpoint.")


def endpoint_types(endpoint: Checked[EndpointSpec], inside: str) -> tuple[Placed, ...]:
    """The instance types of an endpoint that have a row: its own, then its pools'."""
    named = (
        _row_at(f"{inside}instance_pools[{index}].instance_type", pool.instance_type)
        for index, pool in enumerate(endpoint.spec.instance_pools)
    )
    return (*own_type(endpoint, inside), *(place for places in named for place in places))


def own_type(endpoint: Checked[EndpointSpec], inside: str) -> tuple[Placed, ...]:
    """The instance type that an endpoint names, where it has a row."""
    return _row_at(f"{inside}instance_type", endpoint.spec.instance_type)


def joined_type(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """The instance type that a model names which joins another."""
    return _row_at("endpoint.instance_type", view.joins[name].instance_type)


def _row_at(path: str, name: str | None) -> tuple[Placed, ...]:
    row = instance_types().get(name or "")
    return () if row is None else ((path, row),)


def host_driver(view: EnvironmentView, platform: ServingPlatform) -> int | None:
    """The NVIDIA driver of the environment's host image."""
    named = view.environment.spec.inference_ami_version
    image = host_images().get((platform.inference_ami_version if named is None else named) or "")
    return None if image is None else image.driver


@dataclass(frozen=True, kw_only=True)
class GenerationCase:
    """A file, its checkpoint's headers, and the environment that it is judged in, if in one.

    `checkpoint` None: its headers are not in the tree.
    """

    file: Checked[TextGenerationSpec]
    root: Path
    checkpoint: Checkpoint | CheckpointError | None
    environment: Checked[EnvironmentSpec] | None = None

    @property
    def spec(self) -> TextGenerationSpec:
        """What the file holds."""
        return self.file.spec

    @property
    def headers(self) -> Checkpoint | None:
        """The checkpoint where it can be read."""
        return self.checkpoint if isinstance(self.checkpoint, Checkpoint) else None

    @property
    def headers_key(self) -> str:
        """The key that says where the headers lie."""
        return "source.checkpoint" if self.spec.source.headers is None else "source.headers"

    @property
    def platform(self) -> GenerationPlatform | None:
        """The row of `serving.platform`; None for an unknown one."""
        return generation_platforms().get(self.spec.serving.platform)

    @property
    def engine_version(self) -> str | None:
        """The version of vLLM; None for an unknown platform."""
        return None if self.platform is None else self.platform.engine_version

    @property
    def named_types(self) -> Mapping[int, InstanceType]:
        """The instance types of the file that have a row, by their place in the list."""
        names = enumerate(self.spec.endpoint.instance_types)
        return {index: instance_types()[name] for index, name in names if name in instance_types()}

    @property
    def region(self) -> str | None:
        """The environment's region."""
        return None if self.environment is None else self.environment.spec.region

    def candidates(self) -> Iterator[InstanceType]:
        """Yield the GPU types to plan for: those named, or all that the region has."""
        if self.spec.endpoint.instance_types:
            yield from (row for row in self.named_types.values() if row.is_gpu)
            return
        for row in instance_types().values():
            if row.is_gpu and not (self.region and row.is_missing_in(self.region)):
                yield row

    def request(self) -> Request | None:
        """Return what the planner is asked; None where the checkpoint's headers are not known."""
        if self.headers is None:
            return None
        region = self.region

        def hourly(name: str) -> float | None:
            return None if region is None else price(region, "hosting", name)

        return Request(
            spec=self.spec,
            checkpoint=self.headers,
            engine_version=self.engine_version,
            price=hourly,
        )


def generation_cases(view: EnvironmentView, root: Path) -> Iterator[GenerationCase]:
    """Return every text generator of an environment."""
    for file in view.generators.values():
        yield generation_case(file, root, view.environment)


def generation_case(
    file: Checked[TextGenerationSpec],
    root: Path,
    environment: Checked[EnvironmentSpec] | None = None,
) -> GenerationCase:
    """Return one text generator with its checkpoint's headers, where they lie in the tree."""
    return GenerationCase(
        file=file,
        root=root,
        checkpoint=read_checkpoint(file.spec.source, root),
        environment=environment,
    )


def read_checkpoint(
    source: GenerationSourceSpec, root: Path
) -> Checkpoint | CheckpointError | None:
    """Return the headers of a source, or what is wrong with them; None: not in the tree."""
    try:
        if source.headers is not None:
            if not is_inside(root, source.headers):
                return CheckpointError("lies outside the onboarding root", "copy it there")
            return read_headers_file(root / source.headers)
        folder = source.checkpoint
        if folder is None or "://" in folder or not is_inside(root, folder):
            return None
        path = root / folder / (source.path or "")
        if not path.is_dir():
            return None
        if not (path / CONFIGURATION).is_file():
            return CheckpointError(f"has no {CONFIGURATION}", "save it with transformers")
        return read_folder(path)
    except CheckpointError as error:
        return error

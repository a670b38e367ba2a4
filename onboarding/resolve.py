"""What an environment deploys, from a tree without faults and its locks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from onboarding.deployment import VARIANT, Deployment, Pool, Target, Variant
from onboarding.environment_view import EnvironmentView
from onboarding.fault import Fault, FaultsError, comma_list, did_you_mean
from onboarding.keys import engine_keys, ensemble_key, repository_key, runtime_name
from onboarding.lock import Lock, LockEntry
from onboarding.manifest import RuntimeIdentity
from onboarding.model_spec import (
    EndpointSpec,
    EnsembleSpec,
    JoinSpec,
    ModelSpec,
    RepositorySpec,
    SharedEndpointSpec,
)
from onboarding.platform import InstanceType, ServingPlatform, instance_types, serving_platforms
from onboarding.serving_spec import server_beside
from onboarding.tree import Tree, held_entries
from onboarding.values import QuantizationMode, Server


def deployments(tree: Tree, environment: str, only: Collection[str] = ()) -> tuple[Deployment, ...]:
    """Return every endpoint of an environment that has models, or `only` some, by name.

    Text generators are left to `generation_deployments`, by name too. Locks of other endpoints are
    not read. Raises FaultsError when the tree has faults, a name is
    unknown, or a lock cannot be read.
    """
    view = _view(tree, environment)
    behind = _models_behind(view)
    unknown = [
        _left_out(environment, name)
        if name in view.left_out
        else _unknown("models", "endpoint", name, [*behind, *view.generators])
        for name in only
        if name not in behind and name not in view.generators
    ]
    if unknown:
        raise FaultsError(unknown)
    chosen = sorted(name for name in only or behind if name in behind)
    served = [model for name in chosen for model in behind[name]]
    entries = _lock_entries(tree, view, dict.fromkeys(_with_steps(served)))
    return tuple(_endpoint_deployment(tree, view, name, behind[name], entries) for name in chosen)


def _with_steps(models: Iterable[ModelSpec]) -> Iterator[str]:
    """Yield each model's name, and those of an ensemble's models."""
    for model in models:
        yield model.name
        if isinstance(model, EnsembleSpec):
            yield from model.models


def target(
    tree: Tree, environment: str, model: str, compute_capability: str | None = None
) -> tuple[Deployment, Target]:
    """Return one model of an environment, and the endpoint that serves it.

    `compute_capability` selects among the engines of instance pools; default: the first. Raises as
    `deployments` does, and for an unknown model.
    """
    known: list[str] = []
    for deployment in deployments(tree, environment):
        for candidate in deployment.built_targets:
            if candidate.model.name == model:
                known.append(candidate.instance_type.compute_capability)
                if compute_capability in (None, known[-1]):
                    return deployment, candidate
    if model in tree.views[environment].left_out:
        raise FaultsError([_left_out(environment, model)])
    if model in tree.views[environment].generators:
        raise FaultsError([_generator(tree.views[environment], model)])
    if not known:
        raise FaultsError([_unknown("models", "model", model, tree.models)])
    what = f"model {model} is not served on that compute capability in environment {environment}"
    way_out = "leave it out, or name an instance type of it in the model's endpoint"
    raise FaultsError(
        [
            Fault(
                file="models",
                what=what,
                value=compute_capability,
                allowed=comma_list(known),
                way_out=way_out,
            )
        ]
    )


def runtime_identity(
    model: ModelSpec, platform: ServingPlatform, instance: InstanceType
) -> RuntimeIdentity:
    """Return the runtime of a model on an instance type, in the platform's version of it.

    Raises ValueError where the platform has none.
    """
    name = runtime_name(model, instance)
    version = platform.runtime_version(name)
    if version is None:
        raise ValueError(f"platform {platform.name} has no {name} for {instance.name}")
    return RuntimeIdentity(name=name, version=version)


def quantization_mode(model: ModelSpec, platform: ServingPlatform) -> QuantizationMode:
    """The model's own mode, or else the platform's."""
    return platform.quantization if model.engine.quantization is None else model.engine.quantization


def _view(tree: Tree, environment: str) -> EnvironmentView:
    if tree.faults:
        raise FaultsError(tree.faults)
    if environment not in tree.views:
        raise FaultsError([_unknown("environments", "environment", environment, tree.views)])
    return tree.views[environment]


def _unknown(folder: str, kind: str, name: str, known: Iterable[str]) -> Fault:
    names = tuple(known)
    if not name.strip():
        return Fault(
            file=folder,
            what=f"an empty {kind} name",
            allowed=comma_list(names),
            way_out="name one of these",
        )
    way_out = did_you_mean(name, names, f"add {folder}/{name}.yaml")
    return Fault(
        file=folder, what=f"unknown {kind}", value=name, allowed=comma_list(names), way_out=way_out
    )


def _left_out(environment: str, name: str) -> Fault:
    return Fault(
        file=f"environments/{environment}.yaml",
        what="`models` leaves this model out, so it is not deployed here",
        value=name,
        way_out="take it into `models: only`, or out of `models: except`",
    )


def _generator(view: EnvironmentView, name: str) -> Fault:
    """Return the fault of a text generator where an engine is asked for."""
    document = view.generators[name].document
    return Fault(
        file=document.file,
        line=document.at("task").line,
        what=f"'{name}' is a text generator, which has checkpoints and no engine",
        way_out="name a model that has an engine",
    )


def _models_behind(view: EnvironmentView) -> dict[str, tuple[ModelSpec, ...]]:
    """Return the models of every endpoint: its own first, then those that join it, shadows last."""
    models = [file.spec for file in view.models.values()]
    behind = {model.name: [model] for model in models if isinstance(model.endpoint, EndpointSpec)}
    for model in models:
        if isinstance(model.endpoint, str):
            behind.setdefault(model.endpoint, []).append(model)
    joining = [(model.endpoint, model) for model in models if isinstance(model.endpoint, JoinSpec)]
    for join, model in sorted(joining, key=lambda pair: (pair[0].role == "shadow", pair[1].name)):
        behind[join.joins].append(model)
    return {name: tuple(found) for name, found in behind.items()}


Held = tuple[LockEntry, str | None]
"""An engine and, where it is another environment's, that environment."""


def _lock_entries(
    tree: Tree, view: EnvironmentView, models: Iterable[str]
) -> dict[str, dict[str, Held]]:
    """Return the engines of each model by key: the environment's own, then those it may receive."""
    entries: dict[str, dict[str, Held]] = {}
    faults: list[Fault] = []
    for name in models:
        entries[name], wrong = held_entries(tree, view.environment.spec, name, Lock)
        faults += wrong
    if faults:
        raise FaultsError(faults)
    return entries


def _endpoint_deployment(
    tree: Tree,
    view: EnvironmentView,
    name: str,
    models: tuple[ModelSpec, ...],
    entries: Mapping[str, Mapping[str, Held]],
) -> Deployment:
    resolve, own = _Resolver(tree, view, entries), models[0].endpoint
    if isinstance(own, EndpointSpec):
        endpoint: EndpointSpec = own
        first = resolve.own_variant(own, models[:1])
        joined = (resolve.joined_variant(model, own, first.server) for model in models[1:])
        variants = (first, *joined)
    else:
        endpoint = view.endpoints[name].spec
        variants = (resolve.own_variant(endpoint, models),)
    environment = view.environment.spec
    platform, host_image = serving_platforms()[environment.platform], None
    if any(variant.instance_type.is_gpu for variant in variants):
        named = environment.inference_ami_version
        host_image = platform.inference_ami_version if named is None else named
    return Deployment(
        environment=environment,
        name=name,
        endpoint=endpoint,
        multi_model=isinstance(endpoint, SharedEndpointSpec),
        platform=platform,
        inference_ami_version=host_image,
        variants=variants,
    )


@dataclass(frozen=True)
class _Resolver:
    """Variants of one environment."""

    tree: Tree
    view: EnvironmentView
    entries: Mapping[str, Mapping[str, Held]]

    def own_variant(self, endpoint: EndpointSpec, models: tuple[ModelSpec, ...]) -> Variant:
        """The variant that every endpoint has, with a pool for each instance type."""
        names = (endpoint.instance_type, *(pool.instance_type for pool in endpoint.instance_pools))
        pools = [self._pool(priority, name, models) for priority, name in enumerate(names, 1)]
        return Variant(
            name=VARIANT,
            role="variant",
            server=endpoint.server
            if isinstance(endpoint, SharedEndpointSpec)
            else models[0].serving.server,
            weight=endpoint.weight,
            scaling=endpoint.scaling,
            pools=tuple(pools),
        )

    def joined_variant(self, model: ModelSpec, endpoint: EndpointSpec, server: Server) -> Variant:
        """The variant of a model that joins another's endpoint."""
        join = model.endpoint
        assert isinstance(join, JoinSpec)
        instance = endpoint.instance_type if join.instance_type is None else join.instance_type
        return Variant(
            name=model.name,
            role=join.role,
            server=server_beside(model.serving, server),
            weight=join.weight,
            scaling=endpoint.scaling if join.scaling is None else join.scaling,
            pools=(self._pool(1, instance, (model,)),),
        )

    def _pool(self, priority: int, instance_type: str, models: tuple[ModelSpec, ...]) -> Pool:
        platform, instance = (
            serving_platforms()[self.view.environment.spec.platform],
            instance_types()[instance_type],
        )
        targets = tuple(self._target(model, platform, instance) for model in models)
        return Pool(instance_type=instance, priority=priority, targets=targets)

    def _target(
        self, model: ModelSpec, platform: ServingPlatform, instance: InstanceType
    ) -> Target:
        digests, steps = self.tree.dataset_digests, tuple[Target, ...]()
        plan, networks = None, dict[str, str]()
        if isinstance(model, EnsembleSpec):
            specs = [self.view.models[name].spec for name in model.models]
            steps = tuple(self._target(spec, platform, instance) for spec in specs)
            key = ensemble_key(model, {step.model.name: step.engine_key for step in steps}, digests)
        elif isinstance(model, RepositorySpec):
            key = repository_key(model, platform, instance)
        else:
            key, plan, networks = engine_keys(
                model,
                runtime=runtime_identity(model, platform, instance),
                instance=instance,
                quantization=quantization_mode(model, platform),
                dataset_digests=digests,
            )
        entry, held_by = self.entries[model.name].get(key, (None, None))
        return Target(
            model=model,
            instance_type=instance,
            engine_key=key,
            plan_key=plan,
            network_keys=networks,
            lock_entry=entry,
            held_by=held_by,
            steps=steps,
        )

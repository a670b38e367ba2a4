"""What an environment deploys, from a tree without faults and its locks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onboarding.deployment import Deployment, Target
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault, FaultsError
from onboarding.keys import engine_key, network_key, network_precisions
from onboarding.lock import LockEntry, LockError, lock_path, read_lock
from onboarding.manifest import RuntimeIdentity
from onboarding.model_spec import EndpointSpec, ModelSpec, SharedEndpointSpec
from onboarding.nearest import did_you_mean, listed
from onboarding.platform import InstanceType, ServingPlatform, instance_types, serving_platforms
from onboarding.resolved import Resolved
from onboarding.tree import Tree
from onboarding.values import QuantizationMode, Server


def deployments(tree: Tree, environment: str) -> tuple[Deployment, ...]:
    """Every endpoint of an environment, by name; a shared endpoint that no model joins is not deployed.

    Raises FaultsError when the tree has faults, the environment is unknown, or a lock cannot be read.
    """
    view = _view(tree, environment)
    entries = _lock_entries(tree.root, view)
    own = [_own_deployment(tree, view, model, entries) for model in _models(view) if isinstance(model.endpoint, EndpointSpec)]
    shared = [_shared_deployment(tree, view, each.spec, entries) for each in view.endpoints.values()]
    return tuple(sorted([*own, *(each for each in shared if each.targets)], key=lambda deployment: deployment.name))


def target(tree: Tree, environment: str, model: str) -> tuple[Deployment, Target]:
    """One model of an environment, and the endpoint that serves it; raises as `deployments` does, and for an unknown model."""
    for deployment in deployments(tree, environment):
        for each in deployment.targets:
            if each.model.name == model:
                return deployment, each
    raise FaultsError([_unknown("models", "model", model, tree.models)])


def runtime_identity(platform: ServingPlatform, instance: InstanceType) -> RuntimeIdentity:
    """What executes engines on an instance type: the platform's TensorRT on a GPU, its ONNX Runtime on a CPU."""
    if not instance.is_gpu:
        return RuntimeIdentity(name="onnxruntime", version=platform.onnxruntime)
    if platform.tensorrt is None:
        raise ValueError(f"platform {platform.name} has no TensorRT for {instance.name}")
    return RuntimeIdentity(name="tensorrt", version=platform.tensorrt)


def quantization_mode(model: ModelSpec, platform: ServingPlatform) -> QuantizationMode:
    """The model's own mode, or else the platform's."""
    return platform.quantization if model.engine.quantization is None else model.engine.quantization


def _view(tree: Tree, environment: str) -> Resolved:
    if tree.faults:
        raise FaultsError(tree.faults)
    if environment not in tree.views:
        raise FaultsError([_unknown("environments", "environment", environment, tree.views)])
    return tree.views[environment]


def _unknown(folder: str, kind: str, name: str, known: Iterable[str]) -> Fault:
    names = tuple(known)
    way_out = did_you_mean(name, names, f"add {folder}/{name}.yaml")
    return Fault(file=folder, what=f"unknown {kind}", value=name, allowed=listed(names), way_out=way_out)


def _models(view: Resolved) -> list[ModelSpec]:
    return [each.spec for each in view.models.values()]


def _lock_entries(root: Path, view: Resolved) -> dict[str, dict[str, LockEntry]]:
    entries: dict[str, dict[str, LockEntry]] = {}
    faults: list[Fault] = []
    folder = view.environment.spec.locks
    for name in view.models:
        try:
            entries[name] = dict(read_lock(root / folder, name).engines)
        except LockError as error:
            file = lock_path(Path(folder), name).as_posix()
            faults.append(Fault(file=file, what=error.what, way_out=error.way_out))
    if faults:
        raise FaultsError(faults)
    return entries


def _own_deployment(tree: Tree, view: Resolved, model: ModelSpec, entries: dict[str, dict[str, LockEntry]]) -> Deployment:
    assert isinstance(model.endpoint, EndpointSpec)
    return _deployment(tree, view, model.name, model.endpoint, model.serving.server, (model,), entries, multi_model=False)


def _shared_deployment(
    tree: Tree, view: Resolved, endpoint: SharedEndpointSpec, entries: dict[str, dict[str, LockEntry]]
) -> Deployment:
    joined = tuple(model for model in _models(view) if model.endpoint == endpoint.name)
    return _deployment(tree, view, endpoint.name, endpoint, endpoint.server, joined, entries, multi_model=True)


def _deployment(
    tree: Tree,
    view: Resolved,
    name: str,
    endpoint: EndpointSpec,
    server: Server,
    models: tuple[ModelSpec, ...],
    entries: dict[str, dict[str, LockEntry]],
    *,
    multi_model: bool,
) -> Deployment:
    environment = view.environment.spec
    platform, instance = serving_platforms()[environment.platform], instance_types()[endpoint.instance_type]
    return Deployment(
        environment=environment,
        name=name,
        endpoint=endpoint,
        server=server,
        multi_model=multi_model,
        instance_type=instance,
        platform=platform,
        inference_ami_version=_host_image(environment, platform) if instance.is_gpu else None,
        targets=tuple(_target(tree, model, platform, instance, entries[model.name]) for model in models),
    )


def _host_image(environment: EnvironmentSpec, platform: ServingPlatform) -> str | None:
    return platform.inference_ami_version if environment.inference_ami_version is None else environment.inference_ami_version


def _target(
    tree: Tree, model: ModelSpec, platform: ServingPlatform, instance: InstanceType, entries: dict[str, LockEntry]
) -> Target:
    quantization = quantization_mode(model, platform)
    key = engine_key(
        model,
        runtime=runtime_identity(platform, instance),
        compute_capability=instance.compute_capability,
        quantization=quantization,
        dataset_digests=tree.dataset_digests,
    )
    return Target(
        model=model,
        engine_key=key,
        network_keys={
            name: network_key(model, name, tree.dataset_digests, quantization=quantization) for name in network_precisions(model)
        },
        lock_entry=entries.get(key),
    )

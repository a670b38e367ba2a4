"""Rules of ensembles: their models, the tensors between them, and what serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onboarding.chain import Interface, chain_problems
from onboarding.dataset import Datasets
from onboarding.environment_view import EnvironmentView, SpecFiles, serving_server
from onboarding.fault import Fault, comma_list
from onboarding.manifest import TensorRecord
from onboarding.model_spec import EnsembleSpec, ModelSpec, RepositorySpec
from onboarding.onnx_header import NetworkTensor, OnnxHeader
from onboarding.serving_spec import ProcessedTensorSpec, ServingSpec
from onboarding.validation import Checked
from onboarding.values import TEXT_TASKS, Task

_OUTPUTS: dict[Task, tuple[tuple[str, str, tuple[int, ...]], ...]] = {
    "text-embedding": (("embedding", "FP32", (-1, -1)),),
    "text-ranking": (("scores", "FP32", (-1, -1)),),
    "text-classification": (
        ("logits", "FP32", (-1, -1)),
        ("labels", "BYTES", (-1, -1)),
        ("scores", "FP32", (-1, -1)),
    ),
    "token-classification": (
        ("labels", "BYTES", (-1, -1)),
        ("scores", "FP32", (-1, -1)),
        ("offsets", "INT64", (-1, -1, 2)),
    ),
}
_OUTPUTS["image-classification"] = _OUTPUTS["text-classification"]
_IMAGE, _TEXT, _QUERY = "image", "text", "query"


def ensemble_has_models_and_outputs(
    model: Checked[EnsembleSpec], datasets: Datasets
) -> Iterator[Fault]:
    """Nothing is served without a model, or without an answer."""
    if not model.spec.steps:
        yield model.at("task").fault(
            "an ensemble has no models", way_out="list the models in `steps`"
        )
    elif not model.spec.outputs:
        yield model.at("steps").fault(
            "an ensemble has no 'outputs'",
            way_out="add `outputs:`, the tensors of its last model that clients get",
        )


def ensemble_is_served_by_triton(
    model: Checked[EnsembleSpec], datasets: Datasets
) -> Iterator[Fault]:
    """The other keys are of one network: the steps' own files have them."""
    yield from keys_without_effect(
        model,
        "an ensemble",
        allowed="server, dynamic_batching.max_batch_size",
        way_out="write it in the file of a model that it is about",
    )


def keys_without_effect(
    model: Checked[ModelSpec], kind: str, *, allowed: str, way_out: str
) -> Iterator[Fault]:
    """Yield the Python server, and each other key of `serving` that has no effect on a kind.

    An ensemble has a batch size of its own.
    """
    serving, default, is_ensemble = model.spec.serving, ServingSpec(), kind == "an ensemble"
    if serving.server == "python":
        yield model.at("serving.server").fault(
            "the Python server plays no ensembles"
            if is_ensemble
            else f"the Python server loads no models of {kind}",
            value="python",
            allowed="server: triton",
            way_out="serve it with Triton, also on CPU instance types",
        )
    values, defaults = ({**spec.model_dump()} for spec in (serving, default))
    if is_ensemble:
        for dump in (values, defaults):
            batching = dump.pop("dynamic_batching")
            del batching["max_batch_size"]
            dump |= {f"dynamic_batching.{key}": value for key, value in batching.items()}
    for key in sorted(values.keys() - {"server"}):
        if values[key] != defaults[key]:
            yield model.at(f"serving.{key}").fault(
                f"'serving.{key}' has no effect on {kind}, whose models have their own",
                allowed=allowed,
                way_out=way_out,
            )


def models_answer_alone(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Of one Triton, two archives with a model of one name cannot be loaded."""
    endpoint = model.spec.endpoint
    is_ensemble = isinstance(model.spec, EnsembleSpec)
    if isinstance(endpoint, str):
        yield model.at("endpoint").fault(
            f"{'an ensemble' if is_ensemble else 'a Triton repository'} cannot share a multi-model "
            "endpoint: its models' names would meet others",
            value=endpoint,
            allowed="an endpoint of its own, or `joins:`",
            way_out="give it an endpoint",
        )


def ensemble_is_verified_as_a_whole(
    model: Checked[EnsembleSpec], datasets: Datasets
) -> Iterator[Fault]:
    """The reference is the steps' float networks."""
    for key in ("reference", "outputs"):
        if getattr(model.spec.accuracy, key):
            yield model.at(f"accuracy.{key}").fault(
                f"'accuracy.{key}' is of one network, and an ensemble has several",
                way_out="take it out: every output is judged against the models' float networks",
            )


def models_of_ensembles(view: EnvironmentView, datasets: Datasets) -> Iterator[Fault]:
    """Yield names that are no models for an ensemble, and tensors that do not fit."""
    for file in view.models.values():
        spec = file.spec
        if not isinstance(spec, EnsembleSpec):
            continue
        yield from _unknown_models(file, spec, view)
        interfaces = dict(_interfaces(spec, view.models, datasets))
        for problem in chain_problems(spec.steps, spec.outputs, interfaces):
            yield file.at(problem.place).fault(
                problem.what,
                value=problem.value,
                allowed=problem.allowed,
                way_out=problem.way_out,
            )


def endpoints_are_left_out_for_ensembles_alone(files: SpecFiles) -> Iterator[Fault]:
    """A model that nothing serves would be built for nobody."""
    called = {
        name
        for file in files.models.values()
        if isinstance(file.spec, EnsembleSpec)
        for name in file.spec.models
    }
    if any(name.startswith("models/") for name in files.unread):
        return
    for name, file in files.models.items():
        is_called = name in called and not isinstance(file.spec, EnsembleSpec)
        if file.spec.endpoint is None and not is_called:
            yield file.at(()).fault(
                "key 'endpoint' is missing, and no ensemble calls this model",
                way_out="add `endpoint:` (an endpoint of its own, the name of a shared one in "
                "endpoints/, or a place beside another model)",
            )


def servers_play_ensembles(view: EnvironmentView) -> Iterator[Fault]:
    """A model that joins another answers in the other's server."""
    for name, join in view.joins.items():
        model = view.models[name]
        if isinstance(model.spec, EnsembleSpec) and serving_server(view, name)[0] == "python":
            yield model.at("endpoint.joins").fault(
                f"{join.joins} is served by the Python server, which plays no ensembles",
                value=join.joins,
                allowed="a model whose server is triton",
                way_out="give the ensemble an endpoint of its own",
            )


def _unknown_models(
    file: Checked[ModelSpec], spec: EnsembleSpec, view: EnvironmentView
) -> Iterator[Fault]:
    known = [
        name
        for name, other in view.models.items()
        if not isinstance(other.spec, EnsembleSpec | RepositorySpec)
    ]
    for index, name in enumerate(step.model for step in spec.steps):
        if name in known or f"models/{name}" in view.unread:
            continue
        place = file.at(f"steps[{index}].model")
        if name in view.models:
            is_ensemble = isinstance(view.models[name].spec, EnsembleSpec)
            yield place.fault(
                f"an ensemble's model is {'an ensemble' if is_ensemble else 'a repository'} itself",
                value=name,
                allowed=comma_list(known),
                way_out="list its models here"
                if is_ensemble
                else "add the ensemble to the repository",
            )
        elif name in view.left_out:
            yield place.fault(
                "the environment's `models` leaves out a model of the ensemble",
                value=name,
                way_out="take it into `models: only`, or leave the ensemble out too",
            )
        else:
            yield place.unknown("unknown model", name, known, f"add models/{name}.yaml")


def _interfaces(
    spec: EnsembleSpec, models: Mapping[str, Checked[ModelSpec]], datasets: Datasets
) -> Iterator[tuple[str, Interface]]:
    for name in spec.models:
        found = None if name not in models else _interface(models[name].spec, datasets)
        if found is not None:
            yield name, found


def _interface(spec: ModelSpec, datasets: Datasets) -> Interface | None:
    """Return what clients of a model send and get; None where only its build knows."""
    serving = spec.serving
    before = () if serving.preprocessing is None else serving.preprocessing.inputs
    after = () if serving.postprocessing is None else serving.postprocessing.outputs
    inputs, outputs = _network_tensors(spec, datasets)
    taken, answered = _declared(before) or inputs, _declared(after) or outputs
    if taken is None or answered is None:
        return None
    return Interface(inputs=taken, outputs=answered)


Tensors = tuple[TensorRecord, ...]


def _network_tensors(spec: ModelSpec, datasets: Datasets) -> tuple[Tensors | None, Tensors | None]:
    if spec.task in _OUTPUTS:
        names = [_TEXT] if spec.task in TEXT_TASKS else [_IMAGE]
        if spec.task == "text-ranking":
            names = [_QUERY, _TEXT]
        inputs = tuple(TensorRecord(name=n, datatype="BYTES", shape=(-1, 1)) for n in names)
        return inputs, tuple(
            TensorRecord(name=name, datatype=datatype, shape=shape)
            for name, datatype, shape in _OUTPUTS[spec.task]
        )
    header = datasets.onnx_header(spec.source.onnx)
    if not isinstance(header, OnnxHeader):
        return None, None
    return _records(header.inputs), _records(header.outputs)


def _records(tensors: tuple[NetworkTensor, ...]) -> Tensors | None:
    if any(tensor.shape is None for tensor in tensors):
        return None
    return tuple(
        TensorRecord(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape or (-1,))
        for tensor in tensors
    )


def _declared(tensors: tuple[ProcessedTensorSpec, ...]) -> Tensors:
    return tuple(
        TensorRecord(name=tensor.name, datatype=tensor.datatype, shape=(-1, *tensor.dims))
        for tensor in tensors
    )


RULES = (
    ensemble_has_models_and_outputs,
    ensemble_is_served_by_triton,
    models_answer_alone,
    ensemble_is_verified_as_a_whole,
)

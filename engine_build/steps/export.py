"""The export step: the float network of the source, checked against the samples."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import onnx

from engine_build.datasets.dataset import Array, Encoder, Samples
from engine_build.datasets.tensors import ImageEncoder, TensorEncoder
from engine_build.datasets.text import TextEncoder
from engine_build.errors import InputRefused
from engine_build.evaluation.accuracy import CLASS_METRICS, output_standards
from engine_build.log import Log
from engine_build.onnx_graph.external_data import load_model
from engine_build.onnx_graph.network_store import Network, chooses_class, class_indices
from engine_build.onnx_graph.onnx_file import read_model, refuse_opset
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import format_share
from engine_build.quantization.given_qdq import given_network, refuse_scales_of_rows
from engine_build.quantization.layers import Constants, Layer, quantizable_layers
from engine_build.request import BuildContext, BuildRequest
from engine_build.sources.embedding import served_prompts
from engine_build.sources.given_network import check_answers, encoder_for, read_network
from engine_build.steps.step import BuildState
from onboarding.values import EXPORT_OPSET, IMAGES, LEAST_INT8_OPSET

EIGHT_BIT = ("int8", "fp8")
MOST_CUT = 0.5
"""Share of texts that may be longer than the engine takes."""
BATCH = 16


def run(context: BuildContext, state: BuildState) -> None:
    """Make and keep the float network, unless a store had it. Raises BuildError."""
    request, known = context.request, state.networks.get("float")
    network = _network(context, state, known)
    if known is None:
        network = state.network_store.keep(request.network_keys["float"], network)
    if "opset" in network.facts:
        opset, is_auto = int(network.facts["opset"]), request.model.engine.precision == "auto"
        refuse_opset(opset, request.platform, may_be_int8=request.may_be_int8 and not is_auto)
        if request.may_be_int8 and opset < LEAST_INT8_OPSET:
            reason = f"the network has opset {opset}, and INT8 needs {LEAST_INT8_OPSET} or newer"
            context.log.line(f"  int8 is not tried: {reason}; export it with opset 17")
            state.refused["int8"] = reason
    if request.model.engine.sparsity == "enable" and request.is_plan:
        context.log.line(f"  {refuse_dense_network(network)}")
    state.networks["float"] = network
    state.encoder = encoder_for(network, request.longest_sequence)
    check_samples(request, network, state.encoder, context.log)
    given = given_network(network, request, state.encoder)
    if given is not None:
        state.networks[given.precision] = given
        kept = format_share(given.facts, request.opt_shape)
        context.log.line(f"  its own Q/DQ nodes are kept: {kept}")
    elif request.model.engine.precision in EIGHT_BIT and request.model.engine.calibration is None:
        raise InputRefused(
            f"precision {request.model.engine.precision} has no calibration data, and the source "
            "network holds no QuantizeLinear and DequantizeLinear nodes; add `calibration: "
            "{dataset: <file>, samples: 256}` to engine."
        )
    if request.calibrates:
        check_calibration_classes(request, network, state.encoder)


def _network(context: BuildContext, state: BuildState, known: Network | None) -> Network:
    """Find or make it; an ONNX file that a store has is run all the same, on samples maybe new."""
    request, log = context.request, context.log
    if state.source is not None and state.source.is_file():
        with log.step("export", f"{state.source.name} is a network already; it is checked"):
            folder = context.work.scratch("float")
            network = read_network(state.source, request, folder) if known is None else known
            if network.facts.get("qdq_nodes"):
                refuse_scales_of_rows(read_model(network.path))
            return check_answers(network, request)
    if known is not None:
        return known
    from engine_build.sources.export import export

    assert state.model is not None
    prompts = served_prompts(state.model.folder, request.model)
    samples, longest = request.validation.values, request.longest_sequence
    given = request.model.engine.opset
    opset = EXPORT_OPSET if given is None else given
    intent = (
        f"opset {opset}, dynamic batch and, of texts, sequence; compared with PyTorch on real "
        "samples at several shapes"
    )
    with log.step("export", intent):
        folder = context.work.scratch("float")
        network = export(state.model, samples, folder, longest=longest, opset=opset)
    log.line(f"  largest difference from PyTorch {network.facts['max_abs_difference']:.2g}")
    return dataclasses.replace(network, prompts=prompts)


def check_samples(request: BuildRequest, network: Network, encoder: Encoder, log: Log) -> None:
    """Refuse samples that the engine would never see so, and labels that are no class."""
    engine, spec = request.model.engine, request.model.accuracy
    datasets = (
        ("calibration", engine.calibration, request.calibration),
        ("search", engine.sensitivity_search, request.search),
        ("accuracy", spec, request.validation),
    )
    for use, given, samples in datasets:
        if given is None or not samples:
            continue
        dataset = f"{use} dataset {given.dataset}"
        if isinstance(encoder, TextEncoder):
            _check_lengths(dataset, samples, encoder, log)
        elif isinstance(encoder, ImageEncoder):
            _check_images(dataset, samples, encoder)
        elif isinstance(encoder, TensorEncoder):
            encoder.feed(samples.values[:1])
            _check_sizes(dataset, samples, encoder, request)
    labels = request.validation.labels
    for output in output_standards(spec, network, encoder, request.validation.values):
        if output.metric == "order":
            refuse_lone_texts(request.validation, spec.dataset)
        if output.metric == "accuracy" and network.facts.get("activation", "softmax") != "softmax":
            raise InputRefused(
                "metric accuracy compares one class a text with its label, and the network chooses "
                "none: it gives one number, or several labels at once; choose another metric."
            )
        if output.metric in CLASS_METRICS:
            # An empty list asks no more than whether the output has classes.
            classes = labels if output.metric == "accuracy" and labels is not None else ()
            class_indices(classes, network, spec.dataset, output.name)


def refuse_lone_texts(samples: Samples, dataset: str) -> None:
    """Refuse pairs of which no two have one query: there is no order. Raises InputRefused."""
    queries = [sample[0] for sample in samples.values if isinstance(sample, tuple)]
    if len(set(queries)) == len(queries):
        raise InputRefused(
            f"dataset {dataset} has no query with two texts, so no order can be compared; give "
            "each query several texts, or choose metric relative_error."
        )


def check_calibration_classes(request: BuildRequest, network: Network, encoder: Encoder) -> None:
    """Refuse calibration samples of one class, by their labels or else by the network."""
    spec, samples, model = request.model.engine.calibration, request.calibration, request.model
    is_classifier = model.task in ("text-classification", IMAGES)
    by_class = is_classifier or model.accuracy.metric in CLASS_METRICS
    if spec is None or not by_class or not chooses_class(network):
        return
    by, classes = "labels", set(samples.labels or ())
    if samples.labels is None:
        by, answer = "the source model's own answers", OrtNetwork(network.path)
        for feed in encoder.feeds(samples.values, BATCH):
            classes |= {str(index) for index in answer.rows(feed).argmax(axis=1)}
            if len(classes) > 1:
                return
        if network.labels is not None:
            classes = {network.labels[int(index)] for index in classes}
    if len(classes) == 1:
        raise InputRefused(
            f"calibration dataset {spec.dataset} has samples of one class only "
            f"({classes.pop()}, by {by}); INT8 ranges would be of that class alone: give "
            "samples of every class."
        )


def _check_lengths(dataset: str, samples: Samples, encoder: TextEncoder, log: Log) -> None:
    cut = encoder.cut(samples.values)
    if cut > MOST_CUT * len(samples):
        raise InputRefused(
            f"{cut} of the {len(samples)} samples of {dataset} are longer than the "
            f"{encoder.longest} tokens of the longest sequence; raise `sequence` in the model "
            "file, or give samples that the engine will see."
        )
    if cut:
        log.line(
            f"  {cut} of {len(samples)} samples of {dataset} are cut at {encoder.longest} tokens, "
            "as the engine will do"
        )


def _check_images(dataset: str, samples: Samples, encoder: ImageEncoder) -> None:
    for name, sample in zip(samples.names, samples.values, strict=True):
        try:
            encoder.feed([sample])
        except InputRefused as error:
            raise InputRefused(f"{name} of {dataset}: {error}") from error


def _check_sizes(
    dataset: str, samples: Samples, encoder: TensorEncoder, request: BuildRequest
) -> None:
    profiles = request.model.engine.optimization_profiles
    sequences = [profile.sequence for profile in profiles if profile.sequence is not None]
    if not sequences:
        return
    least, most = min(sizes[0] for sizes in sequences), max(sizes[2] for sizes in sequences)
    sizes = map(encoder.sequence, samples.values)
    outside = [size for size in sizes if size is not None and not least <= size <= most]
    if outside:
        raise InputRefused(
            f"{len(outside)} of the {len(samples)} samples of {dataset} have {outside[0]} values "
            f"on the sequence axis, outside the optimization profiles; allowed: {least} to {most}. "
            "Change the dataset, or `sequence` in the model file."
        )


GROUP, ZEROS = 4, 2


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """How many of a network's weights TensorRT may skip half of."""

    layers: int
    sparse_layers: int
    """Those of which every group of four weights has two zeros."""
    sparse_weights: float
    """Share of all weights that lie in those layers."""
    best: float
    """Share of its groups that have two zeros, of the layer with the most."""

    def __str__(self) -> str:
        return (
            f"{self.sparse_layers} of {self.layers} weighted layers ({self.sparse_weights:.1%} of "
            "their weights) have two zeros in every four"
        )


def measure_sparsity(model: onnx.ModelProto) -> Sparsity:
    """Measure every MatMul, Gemm and Conv with a constant float32 weight."""
    constants, layers = Constants(model), quantizable_layers(model)
    rows = []
    for layer in layers:
        weight = constants.array(layer.weight)
        rows.append((weight.size, sparse_share(layer, weight)))
    sizes = sum(size for size, _ in rows)
    sparse = [size for size, share in rows if share == 1.0]
    return Sparsity(
        layers=len(rows),
        sparse_layers=len(sparse),
        sparse_weights=sum(sparse) / sizes if sizes else 0.0,
        best=max((share for _, share in rows), default=0.0),
    )


def sparse_share(layer: Layer, weight: Array) -> float:
    """Return the share of a weight's groups that have two zeros.

    0 where the channels summed over are no multiple of four.
    """
    # [input channels, whatever else]
    channels = (
        np.moveaxis(weight, 1, 0) if layer.operator == "Conv" else layer.rows(weight)
    ).reshape(weight.shape[1 - layer.column_axis], -1)
    if len(channels) % GROUP or not channels.size:
        return 0.0
    zeros = (channels.reshape(-1, GROUP, channels.shape[1]) == 0).sum(axis=1)
    return float((zeros >= ZEROS).mean())


def refuse_dense_network(network: Network) -> Sparsity:
    """Return a network's sparsity, or refuse it where no layer is sparse. Raises InputRefused.

    TensorRT's sparse kernels need two zeros in every four input channels, for each output channel
    and place of a kernel (TensorRT's developer guide, "Structured Sparsity").
    """
    sparsity = measure_sparsity(load_model(network.path))
    if not sparsity.sparse_layers:
        raise InputRefused(
            f"`sparsity: enable` gains nothing: {sparsity}; the nearest layer has them in "
            f"{sparsity.best:.1%} of its groups. Prune the model to 2:4 and train it on (NVIDIA's "
            "Model Optimizer), or leave `sparsity` out."
        )
    return sparsity

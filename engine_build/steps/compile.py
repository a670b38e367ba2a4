"""The compile step: candidates for the engine, each from the network it needs."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import onnx

from engine_build import exported
from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import InputRefused, NetworkRefused, NothingForInt8, one_line
from engine_build.evaluation.decision import Candidate
from engine_build.onnx_graph.external_data import copy_network, pack_network
from engine_build.onnx_graph.network_store import Network, data_file
from engine_build.ort import version
from engine_build.packaging.archive import backend_file
from engine_build.quantization.fp8 import write_cpu_fp8
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext, BuildRequest
from engine_build.steps.step import BuildState
from engine_build.tensorrt.bisection import Difference, first_difference
from engine_build.tensorrt.compilation import NETWORK, Compilation
from engine_build.tensorrt.network import installed_bindings, load_plan
from engine_build.tensorrt.trtexec import PROGRAM, check_host, gpu_host, trtexec_version
from onboarding.keys import chosen_network
from onboarding.values import Precision


def baseline_candidate(context: BuildContext, state: BuildState) -> Candidate:
    """Return the one candidate of a baseline, in the precision that its file asks for.

    Nothing is compiled: the server's library does it when it loads the engine. Raises SourceFault.
    """
    if context.request.library == "pytorch":
        return _program(context, state)
    requested = context.request.model.engine.precision
    given = given_precision(state.networks)
    precision = "fp32" if requested == "auto" else requested
    precision = precision if given is None else given
    network = state.half_networks.get(precision, state.networks.get(chosen_network(precision)))
    assert network is not None
    path = context.work.scratch("engines") / precision / "model.onnx"
    path.parent.mkdir()
    copy_network(network.path, path)
    return Candidate(precision=precision, path=path)


def _program(context: BuildContext, state: BuildState) -> Candidate:
    """Export the source model by torch.export, and compare the program with it."""
    # torch takes seconds to import; other builds of known networks never need it.
    from engine_build.sources.export import comparison_feeds, write_program

    request, model = context.request, state.model
    assert model is not None
    longest = request.longest_sequence
    feeds = comparison_feeds(state.encoder, request.validation.values, longest)
    path = context.work.scratch("engines") / "model.pt2"
    difference = write_program(model, feeds, path, longest=longest)
    model.release()
    context.log.line(f"  largest difference from PyTorch {difference:.2g}")
    return Candidate(precision="fp32", path=path)


def compile_candidates(
    context: BuildContext,
    networks: Mapping[str, Network],
    refused: dict[Precision, str] | None = None,
) -> tuple[Candidate, ...]:
    """Return every candidate of a request, the plainest first. Raises BuildError.

    Under `auto` one that cannot be made is left out: `refused` gets its reason, and what is in it
    already is not tried.
    """
    refused = {} if refused is None else refused
    precisions = _precisions(context.request, networks, refused)
    if context.request.is_plan:
        return _plans(context, networks, precisions, refused)
    folder, network, candidates = context.work.scratch("engines"), networks["float"].path, []
    for precision in precisions:
        path = folder / precision / "model.onnx"
        path.parent.mkdir()
        try:
            if precision == "fp32":
                copy_network(network, path)
            elif precision == "fp8":
                write_cpu_fp8(networks["fp8"].path, path)
            elif given_precision(networks) is not None:
                copy_network(networks[precision].path, path)
            else:
                quantize_dynamically(network, path)
            candidates.append(Candidate(precision=precision, path=path))
        except NothingForInt8 as error:
            if context.request.model.engine.precision != "auto":
                raise
            context.log.line(f"  int8 is not tried: {error}")
            refused["int8"] = str(error)
    return tuple(candidates)


def _precisions(
    request: BuildRequest, networks: Mapping[str, Network], refused: Mapping[Precision, str]
) -> tuple[Precision, ...]:
    """Return the precisions that there are networks for."""
    if (given := given_precision(networks)) is not None:
        return (given,)
    requested = request.model.engine.precision
    needs_none = request.is_cpu or request.quantization == "calibration-cache"
    has_int8 = needs_none or "int8" in networks
    if requested != "auto":
        return (requested,) if requested != "int8" or has_int8 else ()
    plain: Precision = "fp32" if request.is_cpu or "fp16" in refused else "fp16"
    made: dict[Precision, bool] = {
        "int8": request.may_be_int8 and has_int8,
        "fp8": "fp8" in networks,
    }
    tried = (item for item, is_there in made.items() if is_there and item not in refused)
    return (plain, *tried)


def fallback(context: BuildContext, networks: Mapping[str, Network]) -> Candidate | None:
    """Compile what `auto` may still take where FP16 misses the budget: FP32 on a GPU."""
    if not context.request.is_plan or context.request.model.engine.precision != "auto":
        return None
    return _plans(context, networks, ("fp32",), {})[0]


def _plans(
    context: BuildContext,
    networks: Mapping[str, Network],
    precisions: Sequence[Precision],
    refused: dict[Precision, str],
) -> tuple[Candidate, ...]:
    """Compile plans; under `auto` all but an FP32 one may be refused, for `fallback` follows."""
    candidates = []
    for precision in precisions:
        network = _network_of(context, networks, precision)
        try:
            candidates.append(compile_plan(context, precision, network))
        except NetworkRefused as error:
            is_only = precision == "fp32" or given_precision(networks) is not None
            if context.request.model.engine.precision != "auto" or is_only:
                raise
            context.log.line(f"  {precision} is left out: {error}")
            refused[precision] = str(error)
    return tuple(candidates)


def compile_plan(context: BuildContext, precision: Precision, network: Network) -> Candidate:
    """Compile one plan of the network that it needs. Raises InputRefused and NetworkRefused."""
    path, record = _compilation(context, precision, network).compile()
    return Candidate(precision=precision, path=path, plan=record)


def difference(
    context: BuildContext, networks: Mapping[str, Network], candidate: Candidate, feed: Feed
) -> Difference:
    """Return where a plan leaves the network that it was compiled from, by plans of its parts."""
    network = _network_of(context, networks, candidate.precision)
    compilation = _compilation(context, candidate.precision, network)

    def engine_rows(cut: Path, feed: Feed, seconds: float) -> Array:
        with closing(load_plan(compilation.compile_cut(cut, seconds))) as plan:
            return plan.rows(feed)

    folder = context.work.scratch("bisection")
    return first_difference(candidate.path.with_name(NETWORK), feed, engine_rows, folder)


def _network_of(
    context: BuildContext, networks: Mapping[str, Network], precision: Precision
) -> Network:
    by_cache = context.request.quantization == "calibration-cache"
    return networks["float" if by_cache else chosen_network(precision)]


def _compilation(context: BuildContext, precision: Precision, network: Network) -> Compilation:
    return Compilation(
        context=context,
        precision=precision,
        network=network,
        gpu=gpu_host(context.runner).gpu,
        tensorrt=trtexec_version(context.runner),
    )


def refuse_unfit_machine(context: BuildContext) -> None:
    """Refuse, before anything is fetched, what this machine cannot build. Raises InputRefused."""
    request, runner = context.request, context.runner
    if request.is_plan and runner.find(PROGRAM) is None:
        raise InputRefused(
            f"{PROGRAM} is not on this machine, and an engine for compute capability "
            f"{request.compute_capability} needs it; build it in the GPU builder image, as "
            "`roundhouse build` does."
        )
    if request.is_plan:
        check_host(request, runner, forward_compatible=context.settings.forward_compatible)
        installed_bindings()
    has = exported.version() if request.library == "pytorch" else version()
    if not request.is_plan and has != request.runtime.version:
        raise InputRefused(
            f"this machine has {request.library} {has}, but platform "
            f"{request.platform.name} serves {request.runtime.version}; "
            "build with the environment of requirements/builder.txt."
        )
    backend_file((request.root, context.code_root))


def run(context: BuildContext, state: BuildState) -> None:
    """Compile every candidate. Raises InputRefused and NetworkRefused."""
    precisions = ", ".join(_precisions(context.request, state.networks, state.refused))
    with context.log.step("compile", f"{precisions} for {context.request.runtime.name}"):
        if context.request.library == "pytorch" or not (
            context.request.is_plan or context.request.is_cpu
        ):
            state.candidates = (baseline_candidate(context, state),)
        else:
            state.candidates = compile_candidates(context, state.networks, state.refused)


INTEGER = ("MatMulInteger", "ConvInteger", "QAttention", "DynamicQuantizeLSTM")
"""Operators of ONNX Runtime's dynamic quantization that compute in INT8; the rest store it."""


def quantize_dynamically(network: Path, path: Path) -> None:
    """Write a dynamically quantized network. Raises NothingForInt8 where ONNX Runtime cannot.

    Shapes that the exporter noted are dropped first: some contradict the network, and ONNX infers
    all of them anew.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Its advice to pre-process comes as a bare warning of the root logger.
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="dynamic-") as folder:
            source, quantized = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
            data = data_file(network)
            model = onnx.load(network, load_external_data=False)
            del model.graph.value_info[:]
            onnx.save(model, source)
            if data is not None:
                # onnx, which reads it, refuses a file with several hard links.
                shutil.copyfile(data, source.with_name(data.name))
            quantize_dynamic(
                source,
                quantized,
                weight_type=QuantType.QInt8,
                per_channel=True,
                use_external_data_format=data is not None,
            )
            pack_network(quantized, path)
        if not integer_layers(path):
            raise NothingForInt8(
                "the network has no MatMul, Gemm, Conv or LSTM with constant weights, which INT8 "
                "needs; ask for fp32."
            )
    except (OSError, MemoryError, NothingForInt8):
        raise
    except Exception as error:
        raise NothingForInt8(
            f"ONNX Runtime cannot quantize the network dynamically ({one_line(error)}); ask for "
            "fp32, or export it with opset 17."
        ) from error


def integer_layers(network: Path) -> int:
    """Return how many layers of a dynamically quantized network compute in INT8."""
    nodes = onnx.load(network, load_external_data=False).graph.node
    return sum(node.op_type in INTEGER for node in nodes)

"""The environment variables of `serve` in NVIDIA's SageMaker image that we set, and why.

Source: triton-inference-server/server, docker/sagemaker/serve. What is not here keeps the default
of `serve`: gRPC off, 16 MiB of shared memory for each Python backend, `/opt/ml/model`
or `/tmp/sagemaker` as the repository.
"""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.signature import SIGNERS_VARIABLE

DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
"""Of a single model: a text model's archive holds three folders on a GPU, and `serve` refuses to
choose among them."""
LOG_VERBOSE = "SAGEMAKER_TRITON_LOG_VERBOSE"
"""On by default, and the verbose log tells of every request."""
PING_MODE = "SAGEMAKER_TRITON_PING_MODE"
"""`serve` sets it (`live` for several models) but does not export it.

Only a variable that is in the environment already reaches Triton. Without it, one model that fails
to load makes a whole multi-model server unhealthy for good.
"""
ADDITIONAL_ARGS = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
ALLOW_METRICS = "SAGEMAKER_TRITON_ALLOW_METRICS"
"""Triton's Prometheus metrics are off by default."""
METRICS_PORT = "SAGEMAKER_TRITON_METRICS_PORT"
SAFE_PORT = "23000"
"""The first of the ports that SageMaker leaves to a container, 23000 to 23999.

`serve` refuses to start where a port lies outside SAGEMAKER_SAFE_PORT_RANGE, as its default of 8002
does.
"""
COMPLETE = "--disable-auto-complete-config"
"""Generated configurations are complete; completing them starts every python backend twice."""
VERSION_COMPATIBLE = "--backend-config=tensorrt,version-compatible=true"
"""Triton runs the code inside such a plan with this option only; the plans are ours."""
MODEL_FOLDER = "/opt/ml/model"
"""Where SageMaker unpacks the archive of a single model."""
LOAD_MODEL = "--load-model="
"""Triton loads by itself the models of an `ensemble_scheduling`, and none that code calls."""
PLUGINS = "--backend-config=tensorrt,plugins="
"""Libraries that the TensorRT backend loads before its first plan.

The image has checked the archive's signature by then.
"""
RESPONSE_CACHE_BYTES = 64 * 2**20
RESPONSE_CACHE = f"--cache-config=local,size={RESPONSE_CACHE_BYTES}"
"""A model's response cache has no effect where the server has none."""


def serve_environment(
    model: str | None,
    *,
    version_compatible: bool = False,
    plugins: Sequence[str] = (),
    other_models: Sequence[str] = (),
    response_cache: bool = False,
    asynchronous: bool = False,
    metrics: bool = False,
) -> dict[str, str]:
    """The variables of one container; no model is a multi-model endpoint.

    `plugins` are the archive's libraries of custom operators; `other_models` those of a repository
    of the user's own.
    """
    libraries = ";".join(f"{MODEL_FOLDER}/{name}" for name in plugins)
    options = (
        (True, COMPLETE),
        (version_compatible, VERSION_COMPATIBLE),
        (bool(plugins), f"{PLUGINS}{libraries}"),
        *((True, f"{LOAD_MODEL}{name}") for name in other_models),
        (response_cache, RESPONSE_CACHE),
    )
    arguments = " ".join(argument for wanted, argument in options if wanted)
    single = {} if model is None else {DEFAULT_MODEL: model}
    limits = ASYNCHRONOUS_LIMITS if asynchronous else {}
    published = {ALLOW_METRICS: "true", METRICS_PORT: SAFE_PORT} if metrics else {}
    variables = {LOG_VERBOSE: "false", PING_MODE: "ready", ADDITIONAL_ARGS: arguments}
    return {**single, **variables, **published, **limits}


ASYNCHRONOUS_TIMES = {"ROUNDHOUSE_REQUEST_SECONDS": "300", "ROUNDHOUSE_DEADLINE_SECONDS": "900"}
"""How long a body may take to arrive, and a request to be answered.

InvokeEndpointAsync waits 900 s where the caller names no time; the servers' defaults are those of
InvokeEndpoint.
"""
ASYNCHRONOUS_LIMITS = {"ROUNDHOUSE_MAX_BODY_BYTES": str(2**30), **ASYNCHRONOUS_TIMES}
"""Limits of the server before Triton: InvokeEndpointAsync takes a payload of 1 GB.

One request may be of 256 MiB there.
"""
ASYNCHRONOUS_PYTHON_SERVER = {
    **ASYNCHRONOUS_LIMITS,
    "ROUNDHOUSE_MAX_REQUEST_ROWS": "100000",
    "ROUNDHOUSE_QUEUE_ROWS": "200000",
}
"""Limits of the Python server, whose bodies above 8 MiB lie in a file of the container.
"""


def python_server_environment(*, asynchronous: bool, slots: int | None = None) -> dict[str, str]:
    """The variables of one container of the Python server; `slots`: batches at once."""
    limits = ASYNCHRONOUS_PYTHON_SERVER if asynchronous else {}
    return limits | ({} if slots is None else {"ROUNDHOUSE_SLOTS": str(slots)})


def signers_environment(signers: Sequence[str]) -> dict[str, str]:
    """The variable by which either server takes engines of these keys alone; none without keys."""
    return {SIGNERS_VARIABLE: " ".join(signers)} if signers else {}

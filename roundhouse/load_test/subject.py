"""What is loaded: a deployed endpoint or a server's URL, with its model's inputs and SLO."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.load_test.destination import Destination, Requests, refusal, server_url, signer
from roundhouse.load_test.driver import failure_reason, open_driver
from roundhouse.load_test.inputs import read_inputs
from roundhouse.load_test.load_test import LoadTest
from roundhouse.load_test.options import LoadOptions, parse_latency_stop
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.text import choices

if TYPE_CHECKING:
    from onboarding.model_spec import ModelSpec
    from onboarding.tree import Tree

TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


def load_test(paths: Paths, report: Report, options: LoadOptions) -> LoadTest:
    """Return the load test that the options describe. Raises RoundhouseError, FaultsError."""
    options.require_consistent()
    phases = options.phases()
    stop = None if options.stop is None else parse_latency_stop(options.stop)
    subject, destination, model, slo_ms = (
        _endpoint(paths, report, options) if options.url is None else _server(paths, options)
    )
    slo_ms = slo_ms if options.slo is None else options.slo
    if slo_ms is None and not phases:
        raise RoundhouseError(
            "The search for the saturation point needs an SLO; give --slo MILLISECONDS, "
            "or a load with --rate."
        )
    if options.input is not None:
        file = options.input
    elif model is not None and not model.accuracy.dataset:
        raise RoundhouseError(
            f"models/{model.name}.yaml: has no accuracy dataset; give --input FILE."
        )
    elif model is not None:
        file = paths.tree / model.accuracy.dataset  # a real mix of lengths
    else:
        raise RoundhouseError(
            "--url: has no inputs; give --input FILE, or --model NAME for those of "
            "models/NAME.yaml."
        )
    inputs = read_inputs(
        file,
        rows_per_request=options.texts_per_request,
        binary=options.binary,
        paired=model is not None and model.task == "text-ranking",
    )
    return LoadTest(
        subject=subject,
        destination=destination,
        inputs=inputs,
        slo_ms=slo_ms,
        phases=phases,
        stop=stop,
        options=options,
    )


def _endpoint(
    paths: Paths, report: Report, options: LoadOptions
) -> tuple[str, Destination, ModelSpec, float | None]:
    """Return a SageMaker endpoint at boto3's own address, which the local cloud has too."""
    from roundhouse import invocation
    from roundhouse.session import open_session

    session = open_session(paths, report, str(options.env))
    deployments = session.deployments()
    address, target = invocation.address(deployments, str(options.endpoint), options.model)
    slo_ms = next(d.endpoint.latency_slo_ms for d in deployments if target in d.targets)
    runtime_url = session.clients("sagemaker-runtime").meta.endpoint_url
    subject, headers = address.endpoint, {}
    if address.target_model is not None:
        subject, headers = f"{subject}, {target.model.name}", {TARGET_MODEL: address.target_model}
    destination = Destination(
        url=f"{runtime_url}/endpoints/{address.endpoint}/invocations",
        headers=headers,
        region=session.environment.region,
    )
    return subject, destination, target.model, slo_ms


def _server(
    paths: Paths, options: LoadOptions
) -> tuple[str, Destination, ModelSpec | None, float | None]:
    from roundhouse.session import valid_tree

    url = server_url(str(options.url))
    destination, host = Destination(url=url), urlsplit(url).netloc
    if options.model is None:
        return host, destination, None, None
    tree = valid_tree(paths)
    model = tree.models.get(options.model)
    if model is None:
        allowed = choices(options.model, sorted(tree.models))
        raise RoundhouseError(f"--model {options.model}: no such model; {allowed}")
    return f"{model.name} at {host}", destination, model, _slo_ms(tree, model)


def _slo_ms(tree: Tree, model: ModelSpec) -> float | None:
    """Return the SLO of the model's own endpoint, the shared one, or that of the model it joins."""
    from onboarding.model_spec import JoinSpec

    endpoint = model.endpoint
    if isinstance(endpoint, JoinSpec):
        endpoint = tree.models[endpoint.joins].endpoint
    shared = tree.endpoints.get(endpoint) if isinstance(endpoint, str) else endpoint
    return None if shared is None or isinstance(shared, JoinSpec) else shared.latency_slo_ms


async def require_answer(test: LoadTest) -> None:
    """Send the first body and read the answer's arrays: what fails every request is raised here.

    Raises NotReadyError when nothing answers or a server is not ready, RoundhouseError when the
    request is refused, WrongAnswerError when the answer is not KServe v2's.
    """
    import aiohttp

    from container.wire import AnswerFault, arrays_of

    requests = Requests(test.destination, test.inputs.bodies[:1], 0, signer(test.destination))
    data, headers = requests.next()
    async with open_driver(test.destination, requests, test.options) as driver:
        try:
            async with driver.session.post(driver.url, data=data, headers=headers) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = failure_reason(error, test.options.timeout)
            raise NotReadyError(
                f"{driver.url.origin()}: does not answer ({reason}); is the server, or the cloud, "
                "up?"
            ) from error
    if answer.status != 200:
        raise _refusal(test, answer.status, body)
    try:
        arrays_of(body, answer.headers.get("Content-Type", ""))
    except AnswerFault as error:
        raise WrongAnswerError(f"{test.subject}: {error}") from error


def _refusal(test: LoadTest, status: int, body: bytes) -> RoundhouseError:
    message = f"{test.subject}: refused the first request with {refusal(status, body).rstrip('.')}"
    if test.destination.region is not None:
        deployed = "`roundhouse status` shows what is deployed, `roundhouse deploy` deploys it"
        return RoundhouseError(f"{message}; {deployed}.")
    if status >= 500:
        return NotReadyError(f"{message}; is the server ready (/ping)?")
    return RoundhouseError(
        f"{message}; give the path, --model, --input and --binary that this server takes."
    )

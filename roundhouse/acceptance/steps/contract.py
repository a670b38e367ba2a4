"""Sends a part of the contract suite through SageMaker's runtime to both servers."""

from __future__ import annotations

from typing import Any

from onboarding.values import Server
from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.exchanges import EndpointExchange, exchanges
from roundhouse.acceptance.setup import FEWEST, Setup
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep, no_endpoint
from roundhouse.aws.clients import Client, calling
from roundhouse.errors import AwsError

MODEL_ERROR = "ModelError"


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that each server's endpoint replies as the contract suite says."""
    return tuple(
        Assumption(
            name=f"contract.{model.name}",
            says=f"the endpoint of server {model.server} replies to {len(exchanges())} requests "
            "as the contract suite says",
            expected="every status",
        )
        for model in setup.deployed
    )


def run(context: AcceptanceContext) -> str:
    """Send every exchange to every endpoint, and record the statuses that differ."""
    runtime = context.session.clients("sagemaker-runtime")
    for model in context.answering():
        assert model.server is not None
        replies = [
            reply(runtime, context.setup.endpoint(model), exchange) for exchange in exchanges()
        ]
        context.evidence.write_json(f"contract/{model.name}.json", replies)
        differing = _differing(replies, model.server)
        context.findings.record(f"contract.{model.name}", differing or "every status")
    return f"{len(exchanges())} requests each"


def reply(runtime: Client, endpoint: str, exchange: EndpointExchange) -> dict[str, Any]:
    """Return the status and body that an endpoint replies; a refusal of SageMaker has its code."""
    from botocore.exceptions import ClientError

    with calling(f"Endpoint {endpoint}"):
        try:
            answer = runtime.invoke_endpoint(
                EndpointName=endpoint, Body=exchange.body, ContentType=exchange.content_type
            )
        except ClientError as error:
            details = error.response.get("Error", {})
            if details.get("Code") != MODEL_ERROR:
                return {
                    "name": exchange.name,
                    "status": details.get("Code"),
                    "body": details.get("Message"),
                }
            return {
                "name": exchange.name,
                "status": error.response.get("OriginalStatusCode"),
                "body": error.response.get("OriginalMessage"),
            }
        body = answer["Body"].read()
    return {"name": exchange.name, "status": 200, "body": body.decode("utf-8", "replace")[:2000]}


def _differing(replies: list[dict[str, Any]], server: Server) -> str:
    wanted = {exchange.name: exchange.statuses[server] for exchange in exchanges()}
    return "; ".join(
        f"{item['name']}: {item['status']} for {wanted[item['name']]}"
        for item in replies
        if item["status"] != wanted[item["name"]]
    )


def require_answer(runtime: Client, endpoint: str) -> None:
    """Raise AwsError where an endpoint does not answer a plain request."""
    exchange = next(item for item in exchanges() if item.name == "texts in JSON")
    found = reply(runtime, endpoint, exchange)
    if found["status"] != 200:
        raise AwsError(
            f"Endpoint {endpoint} replies {found['status']}: {found['body']}",
            reason=str(found["status"]),
        )


CONTRACT = AcceptanceStep(
    name="contract",
    title="Sending a part of the contract suite",
    limit_minutes=5,
    assumptions=assumptions,
    run=run,
    instances={"python": FEWEST, "triton": 1},
    obstacle=no_endpoint,
)

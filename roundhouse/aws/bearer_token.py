"""Bearer tokens for the OpenAI path of SageMaker endpoints.

A token is a presigned call of the action CallWithBearerToken, as sagemaker-core's token generator
makes it; no request is sent for it. Its caller needs sagemaker:CallWithBearerToken on `*` and
sagemaker:InvokeEndpoint on the endpoint.
"""

from __future__ import annotations

import base64

from roundhouse.aws.clients import calling, frozen_credentials

HOST = "sagemaker.amazonaws.com"
PREFIX, SUFFIX = "sagemaker-api-key-", "&Version=1"
LONGEST_SECONDS = 12 * 60 * 60


def bearer_token(region: str, seconds: int = LONGEST_SECONDS) -> str:
    """Return a token of a region that lasts so many seconds. Raises AwsError."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    purpose = "Signing a bearer token"
    credentials = frozen_credentials(purpose)
    request = AWSRequest(
        method="POST",
        url=f"https://{HOST}/",
        headers={"host": HOST},
        params={"Action": "CallWithBearerToken"},
    )
    with calling(purpose):
        SigV4QueryAuth(credentials(), "sagemaker", region, expires=seconds).add_auth(request)
    presigned = str(request.url).removeprefix("https://") + SUFFIX
    return PREFIX + base64.b64encode(presigned.encode()).decode()

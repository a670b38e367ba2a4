"""Signs requests for SageMaker Runtime with SigV4, by botocore and the process environment's
credentials.
"""

from __future__ import annotations

from typing import Any

from roundhouse.aws.clients import frozen_credentials
from roundhouse.load_test.requests.destination import Body, Destination, Headers, Signed

SERVICE = "sagemaker"
ADDED = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization", "X-Amz-Content-SHA256")


def signer(destination: Destination) -> Signed | None:
    """What signs for a destination; None where nothing is signed.

    Raises AwsError without credentials.
    """
    region = destination.region
    if region is None:
        return None
    from botocore.auth import SigV4Auth

    credentials = frozen_credentials("Signing the requests")
    # Frozen anew for every signature: credentials of a role are renewed while the load runs.
    return lambda body: _headers(SigV4Auth(credentials(), SERVICE, region), destination, body)


def _headers(auth: Any, destination: Destination, body: Body) -> Headers:
    from botocore.awsrequest import AWSRequest

    headers = {"Content-Type": body.content_type, **dict(destination.headers)}
    request: Any = AWSRequest(method="POST", url=destination.url, data=body.data, headers=headers)
    auth.add_auth(request)
    return tuple((name, str(request.headers[name])) for name in ADDED if name in request.headers)

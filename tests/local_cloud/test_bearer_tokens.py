"""Bearer tokens where the local cloud evaluates IAM: both actions, the signature, the age."""

import base64
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from botocore import auth

from tests.local_cloud.authorized_cloud import authorized_cloud
from tests.local_cloud.hosted_component import bearer_token, openai_request

pytestmark = pytest.mark.local_cloud
ACCOUNT = "111122223333"
ACTIONS = {
    "sagemaker:CallWithBearerToken": "*",
    "sagemaker:InvokeEndpoint": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:endpoint/chat",
}
PATH = "/endpoints/chat/openai/v1/chat/completions"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with authorized_cloud(tmp_path_factory.mktemp("authorized") / "state") as cloud:
        yield cloud


@pytest.fixture
def caller(cloud, request):
    """The keys of a user who may do some of the actions."""
    iam, name = cloud.root("iam", ACCOUNT), request.node.name[:60].replace("[", "-").strip("]")
    iam.create_user(UserName=name)

    def allowed(*actions):
        statements = [
            {"Effect": "Allow", "Action": action, "Resource": ACTIONS[action]} for action in actions
        ]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        if actions:
            iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {"key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

    return allowed


def answer(cloud, token):
    """Status and message of a request to an endpoint that is not there."""
    client = SimpleNamespace(client=lambda service: cloud.root(service, ACCOUNT))
    status, _, body = openai_request(client, PATH, {}, token)
    return status, json.loads(body)["error"]["message"]


def test_a_caller_with_both_actions_gets_as_far_as_the_endpoint(cloud, caller):
    token = bearer_token(**caller(*ACTIONS))
    assert answer(cloud, token) == (400, f"Endpoint chat of account {ACCOUNT} not found.")


@pytest.mark.parametrize(("seconds", "status"), [(3600, 400), (600, 403)])
def test_a_token_is_good_for_as_long_as_it_says(cloud, caller, monkeypatch, seconds, status):
    past = datetime.now(UTC) - timedelta(minutes=20)
    with monkeypatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", lambda: past)
        token = bearer_token(seconds=seconds, **caller(*ACTIONS))
    assert answer(cloud, token)[0] == status


@pytest.mark.parametrize("missing", ACTIONS)
def test_refuses_a_caller_without_one_action(cloud, caller, missing):
    token = bearer_token(**caller(*(action for action in ACTIONS if action != missing)))
    status, message = answer(cloud, token)
    assert status == 403
    assert f"is not authorized to perform: {missing} on resource: {ACTIONS[missing]}" in message


def test_refuses_another_signature(cloud, caller):
    keys = caller(*ACTIONS)
    status, message = answer(cloud, bearer_token(key=keys["key"], secret="guessed"))
    assert (status, "signature" in message) == (403, True)
    token = bearer_token(**keys).removeprefix("sagemaker-api-key-")
    changed = base64.b64decode(token).replace(b"us-east-1", b"eu-west-1")
    status, _ = answer(cloud, "sagemaker-api-key-" + base64.b64encode(changed).decode())
    assert status == 403

import pytest

from local_cloud.iam.tokens import (
    GITHUB_CLAIMS,
    check_claims,
    check_signature,
    claims_of,
    github_keys,
)
from local_cloud.protocol.errors import AwsError
from onboarding.aws_limits import GITHUB_ISSUER
from tests.unit.local_cloud.iam.github_issuer import Issuer

pytestmark = pytest.mark.unit
ISSUER = Issuer()
AUDIENCE = ("sts.amazonaws.com",)


@pytest.mark.parametrize("name", GITHUB_CLAIMS)
def test_githubs_claims_are_condition_keys(name):
    claims = claims_of(ISSUER.token(**{name: "given"}))
    assert github_keys(claims) == {f"{GITHUB_ISSUER}:{name}": "given"}


def test_claims_that_sts_does_not_know_are_no_condition_keys():
    token = ISSUER.token(event_name="schedule", repository_owner_id="1", runner_environment="x")
    assert github_keys(claims_of(token)) == {}


def test_another_issuers_claims_are_no_condition_keys():
    token = ISSUER.token(iss="https://gitlab.example.com", repository_id="1")
    assert github_keys(claims_of(token)) == {}


def test_a_token_of_the_issuer_is_taken():
    token = ISSUER.token(sub="repo:acme/models:pull_request")
    check_claims(claims_of(token), AUDIENCE, now=0)
    check_signature(token, ISSUER.keys)


@pytest.mark.parametrize(
    ("code", "claims"),
    [
        ("InvalidIdentityToken", {"aud": "https://github.com/acme"}),
        ("InvalidIdentityToken", {"aud": ["sts.amazonaws.com"]}),
        ("InvalidIdentityToken", {"exp": None}),
        ("ExpiredTokenException", {"exp": 99}),
    ],
)
def test_refuses_claims(code, claims):
    with pytest.raises(AwsError) as error:
        check_claims(claims_of(ISSUER.token(**claims)), AUDIENCE, now=100)
    assert error.value.code == code


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.W10.c", "a.bm90IGpzb24.c"])
def test_refuses_what_is_no_token(token):
    with pytest.raises(AwsError, match="not a valid JWT"):
        claims_of(token)


def test_refuses_every_changed_part_of_a_token():
    token = ISSUER.token(sub="repo:acme/models:pull_request")
    header, claims, signature = token.split(".")
    other_header, other_claims, other_signature = ISSUER.token(sub="repo:evil/m:x").split(".")
    assert header == other_header
    for changed in (
        f"{header}.{other_claims}.{signature}",
        f"{header}.{claims}.{other_signature}",
        f"{header}.{claims}.",
        f"{header[:-1]}.{claims}.{signature}",
        f"e30.{claims}.{signature}",
    ):
        with pytest.raises(AwsError) as error:
            check_signature(changed, ISSUER.keys)
        assert error.value.code == "InvalidIdentityToken"


def test_refuses_a_token_of_another_key():
    with pytest.raises(AwsError, match="signature verification failed"):
        check_signature(Issuer(seed=1).token(sub="x"), ISSUER.keys)
    with pytest.raises(AwsError, match="verification key"):
        check_signature(ISSUER.token(sub="x"), {"keys": []})

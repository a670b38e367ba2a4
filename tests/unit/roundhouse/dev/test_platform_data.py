from __future__ import annotations

import pytest

from roundhouse.dev.platform_data import differences

pytestmark = pytest.mark.unit

REGISTRIES = {"us-east-1": "111122223333", "eu-west-1": "444455556666"}
SDK = {
    "versions": {
        "25.09": {
            "registries": {"us-east-1": "111122223333"},
            "repository": "triton",
            "tag_prefix": "25.09-py3",
        },
        "26.05": {"registries": REGISTRIES, "repository": "triton", "tag_prefix": "26.05-py3"},
    }
}
IMAGES = {"triton-26.05": "triton:26.05-py3"}


def test_platform_data_agrees_with_equal_tables():
    assert differences(SDK, REGISTRIES, IMAGES) == []


def test_refuses_another_account_and_a_missing_region():
    assert differences(SDK, {"us-east-1": "999988887777"}, IMAGES) == [
        "eu-west-1: we say account none, the SDK 444455556666.",
        "us-east-1: we say account 999988887777, the SDK 111122223333.",
    ]


def test_refuses_an_image_the_sdk_does_not_know():
    found = differences(SDK, REGISTRIES, {**IMAGES, "triton-27.01": "triton:27.01-py3"})
    assert found == [
        "triton-27.01: the SDK knows no image triton:27.01-py3; it knows triton:25.09-py3, "
        "triton:26.05-py3."
    ]


def test_names_a_newer_image_of_the_sdk():
    assert differences(SDK, REGISTRIES, {"triton-25.09": "triton:25.09-py3"}) == [
        "the SDK's newest Triton image is 26.05; no serving platform of ours uses it."
    ]

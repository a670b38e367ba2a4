from __future__ import annotations

import pytest

from roundhouse.dev.platform_data import differences

REGISTRIES = {"us-east-1": "111122223333", "eu-west-1": "444455556666"}
IMAGES = {"triton-26.05": "triton:26.05-py3"}
OTHER_ACCOUNT = {"us-east-1": "999988887777"}
UNKNOWN = {**IMAGES, "triton-27.01": "triton:27.01-py3"}


def version(number, registries):
    return {"registries": registries, "repository": "triton", "tag_prefix": f"{number}-py3"}


SDK = {
    "versions": {
        "25.09": version("25.09", {"us-east-1": "111122223333"}),
        "26.05": version("26.05", REGISTRIES),
    }
}


@pytest.mark.parametrize(
    ("registries", "images", "messages"),
    [
        (REGISTRIES, IMAGES, []),
        (
            OTHER_ACCOUNT,
            IMAGES,
            [
                "eu-west-1: we say account none, the SDK 444455556666.",
                "us-east-1: we say account 999988887777, the SDK 111122223333.",
            ],
        ),
        (
            REGISTRIES,
            UNKNOWN,
            [
                "triton-27.01: the SDK knows no image triton:27.01-py3; it knows triton:25.09-py3, "
                "triton:26.05-py3."
            ],
        ),
        (
            REGISTRIES,
            {"triton-25.09": "triton:25.09-py3"},
            ["the SDK's newest Triton image is 26.05; no serving platform of ours uses it."],
        ),
    ],
    ids=["equal", "account and region", "image", "newer image"],
)
def test_every_difference_is_a_sentence(registries, images, messages):
    assert differences(SDK, registries, images) == messages

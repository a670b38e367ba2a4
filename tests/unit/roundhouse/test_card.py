"""Fetch an engine's card."""

from __future__ import annotations

import dataclasses
import io
import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from engine_build.card.page import PrecisionRow
from onboarding.names import engine_card_data_path, engine_card_path
from roundhouse.card import fetch_card, write_precisions
from roundhouse.errors import RoundhouseError
from tests.unit.roundhouse.engines import copied_tree, local_deployments

pytestmark = pytest.mark.unit


@dataclass
class Bucket:
    """An S3 client with some objects."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def get_object(self, Bucket, Key):
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Key])}


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))


def session(deployments, bucket):
    return SimpleNamespace(
        environment=deployments[0].environment,
        deployments=lambda: deployments,
        clients=lambda service: {"s3": bucket}[service],
    )


def test_card_and_its_numbers_are_written_side_by_side(deployments, tmp_path):
    key = deployments[0].targets[0].engine_key
    bucket = Bucket({engine_card_path(key): b"<html>", engine_card_data_path(key): b"{}"})
    page = fetch_card(session(deployments, bucket), "sentence-embedder", tmp_path / "cards")
    assert (page.name, page.read_bytes()) == ("local-sentence-embedder.html", b"<html>")
    assert page.with_suffix(".json").read_bytes() == b"{}"


def test_precisions_are_written_beside_the_page(tmp_path):
    page = tmp_path / "local-m.html"
    names = [field.name for field in dataclasses.fields(PrecisionRow)]
    row = dict.fromkeys(names) | {"precision": "fp32", "state": "published", "p50_ms": 2.5}
    page.with_suffix(".json").write_text(json.dumps({"precisions": [row]}))
    (read,) = write_precisions(page)
    assert read.p50_ms == 2.5
    assert "| FP32 | published | – |" in page.with_suffix(".md").read_text()


def test_older_cards_have_no_precisions(tmp_path):
    page = tmp_path / "local-m.html"
    page.with_suffix(".json").write_text("{}")
    assert write_precisions(page) == () and not page.with_suffix(".md").exists()


def test_refuses_a_card_that_is_not_there_and_says_what_makes_it(deployments, tmp_path):
    with pytest.raises(
        RoundhouseError, match=r"card.html is not there; `roundhouse build --env local --model "
    ):
        fetch_card(session(deployments, Bucket()), "sentence-embedder", tmp_path)


def test_refuses_an_unknown_model(deployments, tmp_path):
    with pytest.raises(RoundhouseError, match=r"allowed: .*sentence-embedder"):
        fetch_card(session(deployments, Bucket()), "nothing", tmp_path)

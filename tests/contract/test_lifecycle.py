"""Starting, stopping and, on a multi-model server, loading and unloading."""

from __future__ import annotations

import pytest

from tests.contract.conftest import (
    end_of,
)
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"ROUNDHOUSE_QUEUE_ROW": "5"}, "did you mean ROUNDHOUSE_QUEUE_ROWS?"),
        ({"ROUNDHOUSE_BIND_ADDRESS": "192.0.2.1"}, "Cannot listen on 192.0.2.1:"),
    ],
)
def test_refuses_to_start_with_a_wrong_setting(archive, tmp_path, variables, sentence):
    status, log = end_of("python-server", archive, tmp_path, **variables)
    (line,) = log.splitlines()
    assert status in (2, 4) and sentence in line


def test_refuses_an_engine_that_cannot_be_loaded(tmp_path):
    archive = tmp_path / "model"
    write_archive(archive, engine_file=f"{MODEL}/1/tokenizer.json")
    status, log = end_of("python-server", archive, tmp_path)
    assert status == 4 and "cannot be loaded" in log and "Traceback" not in log

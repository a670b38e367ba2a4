"""A server that still loads or unloads a target model, or has no room for it."""

from collections import deque
from types import SimpleNamespace

import pytest

from local_cloud.sagemaker.hosting import multi_model
from local_cloud.sagemaker.hosting.multi_model import LoadError, TargetModels

pytestmark = pytest.mark.unit


class Server:
    """Replies with statuses, one after another."""

    def __init__(self, *statuses):
        self.statuses, self.requests = deque(statuses), []

    def request(self, method, path, body, headers, seconds):
        self.requests.append(method)
        return SimpleNamespace(status=self.statuses.popleft(), body=b"no", headers={})


@pytest.mark.parametrize(
    ("statuses", "methods"),
    [
        ((200,), ["POST"]),
        ((409, 200), ["POST", "GET"]),
        ((409, 404, 409, 404, 200), ["POST", "GET", "POST", "GET", "POST"]),
    ],
)
def test_a_model_is_loaded_once_the_server_says_that_it_has_it(statuses, methods, tmp_path):
    server = Server(*statuses)
    models = TargetModels(client=server, prefix="s3://b/", folder=tmp_path, read=None)
    assert models._load("name", "a.tar.gz") == ()
    assert server.requests == methods


def test_refuses_a_model_that_never_fits_or_never_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(multi_model, "LOAD_SECONDS", 0.0)
    for statuses in ((507,), (409, 404), (400,)):
        models = TargetModels(
            client=Server(*statuses), prefix="s3://b/", folder=tmp_path, read=None
        )
        with pytest.raises(LoadError) as error:
            models._load("name", "a.tar.gz")
        assert error.value.response.status == statuses[0]

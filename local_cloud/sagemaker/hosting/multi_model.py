"""The target models of one multi-model server: loaded on request, unloaded when memory is short."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_cloud.containers.archive import s3_location, unpack_model
from local_cloud.containers.server_client import Response, ServerClient

LOAD_SECONDS, POLL_SECONDS = 300.0, 0.2
# Sent with load and unload too: Triton prefers it to the name in the path.
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


class TargetModelError(Exception):
    """A target model's archive cannot be had; the message is SageMaker's."""


class LoadError(Exception):
    """The server refused to load a target model."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.body.decode(errors="replace"))
        self.response = response


@dataclass(kw_only=True)
class TargetModels:
    """Loads, invokes and unloads target models by SageMaker's multi-model contract.

    `read` returns an object of S3.
    """

    client: ServerClient
    prefix: str
    folder: Path
    read: Callable[[str, str], bytes | None]
    _loaded: OrderedDict[str, str] = field(default_factory=OrderedDict)
    _in_use: dict[str, int] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _loading: threading.Lock = field(default_factory=threading.Lock)

    def invoke(
        self, target_model: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> tuple[Response, float]:
        """Invoke one target model, loading it first if the server does not have it.

        Returns the reply, and the seconds that loading took: 0 where it was loaded.
        """
        name = hashlib.sha256(target_model.encode()).hexdigest()[:32]
        loading = self._acquire(name, target_model)
        try:
            sent = {**headers, TARGET_MODEL: target_model}
            response = self.client.request(
                "POST", f"/models/{name}/invoke", body, sent, timeout_seconds
            )
        finally:
            with self._turn:
                self._in_use[name] -= 1
        if response.status == 404:
            with self._turn:
                self._loaded.pop(name, None)
        return response, loading

    def _acquire(self, name: str, target_model: str) -> float:
        """Mark a target model as in use; load it first where needed, one at a time."""
        if self._acquire_loaded(name):
            return 0.0
        with self._loading:
            if self._acquire_loaded(name):
                return 0.0
            begun = time.monotonic()
            self._fetch(name, target_model)
            self._load(name, target_model)
            with self._turn:
                self._loaded[name] = target_model
                self._in_use[name] = self._in_use.get(name, 0) + 1
            return time.monotonic() - begun

    def _acquire_loaded(self, name: str) -> bool:
        with self._turn:
            if name not in self._loaded:
                return False
            self._loaded.move_to_end(name)
            self._in_use[name] = self._in_use.get(name, 0) + 1
            return True

    def _fetch(self, name: str, target_model: str) -> None:
        """Download and unpack a target model, unless an earlier load left its files."""
        if (self.folder / name).exists():
            return
        bucket, key = s3_location(self.prefix + target_model)
        content = self.read(bucket, key)
        if content is None:
            raise TargetModelError(
                f"Failed to download model data(bucket: {bucket}, key: {key}). Please ensure that "
                "there is an object located at the URL and that the role passed to CreateModel "
                "has permissions to download the model."
            )
        draft = self.folder / f"{name}.part"
        shutil.rmtree(draft, ignore_errors=True)
        unpack_model(content, draft / "model", f"s3://{bucket}/{key}")
        draft.rename(self.folder / name)

    def _load(self, name: str, target_model: str) -> None:
        """Load, after unloading others while the server replies 507. Raises LoadError."""
        body = f'{{"model_name": "{name}", "url": "{self.folder / name / "model"}"}}'.encode()
        headers = {"Content-Type": "application/json", TARGET_MODEL: target_model}
        deadline = time.monotonic() + LOAD_SECONDS
        while True:
            response = self.client.request("POST", "/models", body, headers, LOAD_SECONDS)
            is_loaded = response.status == 409 and self._has(name, headers)
            if response.status == 200 or is_loaded:
                return
            if response.status == 409 and time.monotonic() < deadline:
                # A load that nobody waits for any more, or an unload, has not ended yet.
                time.sleep(POLL_SECONDS)
            elif response.status != 507 or not self._unload_one():
                raise LoadError(response)

    def _has(self, name: str, headers: Mapping[str, str]) -> bool:
        """Whether the server has loaded a target model."""
        reply = self.client.request("GET", f"/models/{name}", b"", headers, LOAD_SECONDS)
        return reply.status == 200

    def _unload_one(self) -> bool:
        """Unload the least recently used idle target model; False when there is none."""
        with self._turn:
            idle = [name for name in self._loaded if not self._in_use.get(name)]
            if not idle:
                return False
            target_model = self._loaded.pop(idle[0])
        headers = {TARGET_MODEL: target_model}
        self.client.request("DELETE", f"/models/{idle[0]}", b"", headers, LOAD_SECONDS)
        return True

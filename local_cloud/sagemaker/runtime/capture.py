"""Data capture as JSON lines in S3. Source: AWS, "Capture data from real-time endpoint"."""

from __future__ import annotations

import base64
import contextvars
import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from local_cloud.containers.archive import s3_location
from local_cloud.ministack.account import write_object
from local_cloud.protocol.errors import Reply, present_fields
from local_cloud.sagemaker.hosting.endpoint import Served
from local_cloud.sagemaker.runtime.invocation import INFERENCE_ID, Invocation
from local_cloud.settings import Settings

DELIVERED_EVERY_SECONDS = 60.0
Config = Mapping[str, Any]
logger = logging.getLogger("roundhouse.capture")


class Captures:
    """Collects lines, and delivers those of an endpoint's variant together after a while."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lines: dict[tuple[str, ...], list[str]] = {}
        self._turn = threading.Lock()

    def record(self, served: Served, invocation: Invocation, reply: Reply) -> None:
        """Captures successful invocations by the endpoint config's sampling percentage."""
        config = served.fleet.config.get("DataCaptureConfig")
        if config is None or not config.get("EnableCapture", True) or reply[0] != 200:
            return
        if random.random() * 100 >= config["InitialSamplingPercentage"]:
            return
        now = time.time()
        line = json.dumps(capture_record(config, invocation, reply, now), separators=(",", ":"))
        key = (
            config["DestinationS3Uri"].rstrip("/"),
            invocation.endpoint,
            served.variant.name,
            time.strftime("%Y/%m/%d/%H", time.gmtime(now)),
            config.get("KmsKeyId") or "",
        )
        with self._turn:
            is_first = key not in self._lines
            self._lines.setdefault(key, []).append(line)
        if is_first:
            self._deliver_later(key)

    def _deliver_later(self, key: tuple[str, ...]) -> None:
        seconds = self._settings.scaled_wait(DELIVERED_EVERY_SECONDS)
        run = contextvars.copy_context().run
        timer = threading.Timer(seconds, run, args=(self._deliver, key))
        timer.daemon = True
        timer.start()

    def _deliver(self, key: tuple[str, ...]) -> None:
        with self._turn:
            lines = self._lines.pop(key)
        *folders, kms_key = key
        now = time.time()
        moment = time.strftime("%M-%S", time.gmtime(now))
        name = f"{moment}-{int(now * 1000) % 1000:03d}-{uuid.uuid4()}.jsonl"
        bucket, path = s3_location("/".join([*folders, name]))
        content = "".join(f"{line}\n" for line in lines).encode()
        if not write_object(bucket, path, content, "application/jsonlines", kms_key or None):
            message = "%d captured invocations cannot be written to s3://%s/%s"
            logger.warning(message, len(lines), bucket, path)


def capture_record(config: Config, invocation: Invocation, reply: Reply, now: float) -> Config:
    """Return one captured invocation: the sides that the config asks for, and its time."""
    modes = {option["CaptureMode"] for option in config["CaptureOptions"]}
    sides = (("Input", invocation.headers, invocation.body), ("Output", reply[1], reply[2]))
    captured = {}
    for mode, headers, body in sides:
        if modes & {mode, "InputAndOutput"}:
            content_type = headers.get("content-type", "")
            listed = config.get("CaptureContentTypeHeader") or {}
            encoding, data = encode_body(listed, content_type, body)
            captured[f"endpoint{mode}"] = {
                "observedContentType": content_type,
                "mode": mode.upper(),
                "data": data,
                "encoding": encoding,
            }
    return {
        "captureData": captured,
        "eventMetadata": {
            "eventId": str(uuid.uuid4()),
            **present_fields(inferenceId=invocation.headers.get(INFERENCE_ID)),
            "inferenceTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        },
        "eventVersion": "0",
    }


def encode_body(headers: Config, content_type: str, body: bytes) -> tuple[str, str]:
    """Return encoding and text of a body: CSV or JSON where the config lists it, else base64."""
    plain = content_type.split(";")[0].strip().lower()
    for encoding, field in (("CSV", "CsvContentTypes"), ("JSON", "JsonContentTypes")):
        if plain in {listed.lower() for listed in headers.get(field) or ()}:
            return encoding, body.decode(errors="replace")
    return "BASE64", base64.b64encode(body).decode()

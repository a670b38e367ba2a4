"""Data capture: requests and answers as JSON lines in S3, in SageMaker's form.

Source: AWS, "Capture data from real-time endpoint": captureData, eventMetadata,
`<endpoint>/<variant>/yyyy/mm/dd/hh/*.jsonl`.
"""

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
from local_cloud.protocol.errors import Reply
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
        hour = time.strftime("%Y/%m/%d/%H", time.gmtime(now))
        key = (
            config["DestinationS3Uri"].rstrip("/"),
            invocation.endpoint,
            served.variant.name,
            hour,
            config.get("KmsKeyId") or "",
        )
        with self._turn:
            is_first = key not in self._lines
            self._lines.setdefault(key, []).append(line)
        if is_first:
            self._deliver_later(key)

    def _deliver_later(self, key: tuple[str, ...]) -> None:
        run = contextvars.copy_context().run
        timer = threading.Timer(
            self._settings.scaled_wait(DELIVERED_EVERY_SECONDS), run, args=(self._deliver, key)
        )
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
        if not write_object(
            bucket,
            path,
            "".join(f"{line}\n" for line in lines).encode(),
            "application/jsonlines",
            kms_key or None,
        ):
            logger.warning(
                "%d captured invocations cannot be written to s3://%s/%s", len(lines), bucket, path
            )


def capture_record(config: Config, invocation: Invocation, reply: Reply, now: float) -> Config:
    """One captured invocation: the sides that the config asks for, and when it was."""
    modes = {option["CaptureMode"] for option in config["CaptureOptions"]}
    _, headers, body = reply
    sides = {
        "endpointInput": ("INPUT", invocation.headers.get("content-type", ""), invocation.body),
        "endpointOutput": ("OUTPUT", headers.get("content-type", ""), body),
    }
    wanted = [
        *(("endpointInput",) if modes & {"Input", "InputAndOutput"} else ()),
        *(("endpointOutput",) if modes & {"Output", "InputAndOutput"} else ()),
    ]
    inference_id = invocation.headers.get(INFERENCE_ID)
    return {
        "captureData": {name: _side(config, *sides[name]) for name in wanted},
        "eventMetadata": {
            "eventId": str(uuid.uuid4()),
            **({} if inference_id is None else {"inferenceId": inference_id}),
            "inferenceTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        },
        "eventVersion": "0",
    }


def _side(config: Config, mode: str, content_type: str, body: bytes) -> Config:
    encoding, data = encode_body(config.get("CaptureContentTypeHeader") or {}, content_type, body)
    return {"observedContentType": content_type, "mode": mode, "data": data, "encoding": encoding}


def encode_body(headers: Config, content_type: str, body: bytes) -> tuple[str, str]:
    """How a body is captured.

    As CSV or JSON text where the config lists its content type, else in base64.
    """
    plain = content_type.split(";")[0].strip().lower()
    for encoding, field in (("CSV", "CsvContentTypes"), ("JSON", "JsonContentTypes")):
        if plain in {listed.lower() for listed in headers.get(field) or ()}:
            return encoding, body.decode(errors="replace")
    return "BASE64", base64.b64encode(body).decode()

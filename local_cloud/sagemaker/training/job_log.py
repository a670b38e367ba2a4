"""A job's output, followed from its file into a CloudWatch log stream."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ministack.services import cloudwatch_logs

from local_cloud.ministack.account import in_background

EVERY_SECONDS = 0.3


@dataclass(kw_only=True)
class JobLog:
    """One stream; `path` is the file that the job writes."""

    path: Path
    group: str
    stream: str
    _sent: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> threading.Thread:
        """Create the stream, and publish the job's output until `end`."""
        self.path.touch()
        stream = {"logGroupName": self.group, "logStreamName": self.stream}
        cloudwatch_logs._create_log_group({"logGroupName": self.group})
        cloudwatch_logs._create_log_stream(stream)
        return in_background(self._follow)

    def end(self) -> None:
        """Publish the last lines."""
        self._over.set()

    def _follow(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            self._publish()
        self._publish(whole=True)

    def _publish(self, *, whole: bool = False) -> None:
        with self.path.open("rb") as file:
            file.seek(self._sent)
            text = file.read()
        complete = text if whole else text[: text.rfind(b"\n") + 1]
        self._sent += len(complete)
        now = int(time.time() * 1000)
        events = [
            {"timestamp": now, "message": line}
            for line in complete.decode(errors="replace").splitlines()
        ]
        if events:
            cloudwatch_logs._put_log_events(
                {"logGroupName": self.group, "logStreamName": self.stream, "logEvents": events}
            )

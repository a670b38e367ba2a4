"""What a build says: a stream in CloudWatch, and the last line of the build's own words in it."""

from __future__ import annotations

from roundhouse.aws.clients import Clients

LINES = 50


def stream_text(clients: Clients, group: str | None, stream: str | None) -> str:
    """The newest lines of a stream; empty while there is none, or when it cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    if group is None or stream is None:
        return ""
    try:
        events = clients("logs").get_log_events(
            logGroupName=group, logStreamName=stream, limit=LINES
        )["events"]
    except (BotoCoreError, ClientError):
        return ""
    return "\n".join(str(event["message"]).rstrip("\n") for event in events)


def job_text(clients: Clients, group: str, job: str) -> str:
    """The newest lines of a training job, whose one stream begins with its name."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        streams = clients("logs").describe_log_streams(
            logGroupName=group, logStreamNamePrefix=f"{job}/", limit=1
        )["logStreams"]
    except (BotoCoreError, ClientError):
        return ""
    return stream_text(clients, group, streams[0]["logStreamName"]) if streams else ""


def last_line(text: str) -> str:
    """The last line of the build's own words; CodeBuild's `[Container]` lines and commands stand
    around them.
    """
    lines = [line.strip() for line in text.splitlines()]
    return next(
        (line for line in reversed(lines) if line and not line.startswith(("[Container]", "$ "))),
        "",
    )

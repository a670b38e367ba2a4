"""Schedules in MiniStack's store, refused and played as EventBridge Scheduler does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ministack.core.responses import request_scope
from ministack.services import scheduler
from ministack.services.cloudformation import provisioners

from local_cloud.iam.service_roles import allows, may_assume
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.constraints import checked_request
from local_cloud.protocol.errors import AwsError, Reply, error_reply, validation_error
from local_cloud.protocol.schedule import ScheduleError
from local_cloud.scheduler.occurrences import Occurrences, occurrences
from local_cloud.scheduler.targets import Targets

SERVICE = "scheduler.amazonaws.com"
TYPE = "AWS::Scheduler::Schedule"
DEFAULT_GROUP = "default"
RETRY_SECONDS = 60.0
"""Between two tries of a call; AWS's own pauses grow."""
logger = logging.getLogger("roundhouse.scheduler")


class Schedules:
    """Checks schedules as they are written, and calls their targets when they are due."""

    def __init__(self, targets: Targets, *, seconds_per_minute: float) -> None:
        self._targets, self._pace = targets, seconds_per_minute
        self._known: dict[tuple[str, str, str], tuple[Mapping[str, Any], Occurrences]] = {}

    def install(self) -> None:
        """Take the place of MiniStack's own ticker and of its CloudFormation type."""
        create, update = scheduler._create_schedule, scheduler._update_schedule
        scheduler._tick_schedules = lambda: None
        scheduler._create_schedule = lambda name, body: self._write(create, name, body)
        scheduler._update_schedule = lambda name, body: self._write(update, name, body)
        delete = provisioners._RESOURCE_HANDLERS[TYPE]["delete"]
        provisioners._RESOURCE_HANDLERS[TYPE] = {
            "create": _create_resource,
            "update": _update_resource,
            "delete": delete,
        }
        provisioners._REPLACING_PROPERTIES[TYPE] = ("Name",)

    def step(self, now: float) -> None:
        """Call the targets of what is due at a time, in seconds since the epoch."""
        moment = datetime.fromtimestamp(now, UTC)
        stored = dict(scheduler._schedules._data)
        self._known = {key: value for key, value in self._known.items() if key in stored}
        for key, record in stored.items():
            known = self._known.get(key)
            if known is None or known[0] is not record:
                begun = datetime.fromtimestamp(record["LastModificationDate"], UTC)
                known = self._known[key] = (record, occurrences(record, begun, self._pace))
            with request_scope(*key[:2]):
                self._step_schedule(key[2], record, known[1], moment)

    def _step_schedule(
        self, key: str, record: Mapping[str, Any], its: Occurrences, now: datetime
    ) -> None:
        if its.is_due(now) and record["State"] == "ENABLED":
            try:
                self._call(record["Target"])
                its.succeed()
            except AwsError as error:
                again = its.fail(now, timedelta(seconds=RETRY_SECONDS * self._pace / 60))
                outcome = "is tried again" if again else "is given up"
                logger.warning("schedule %s: %s; its call %s", key, error.message, outcome)
        if its.is_completed and record["ActionAfterCompletion"] == "DELETE":
            scheduler._schedules.pop(key, None)

    def _call(self, target: Mapping[str, Any]) -> None:
        call, role = self._targets.call_of(target), str(target["RoleArn"])
        if not may_assume(role, SERVICE, group_arn()):
            raise AwsError("AccessDeniedException", f"{SERVICE} may not assume {role}", 403)
        if not allows(role, call.action, call.resource):
            message = f"{role} is not authorized to perform: {call.action} on {call.resource}"
            raise AwsError("AccessDeniedException", message, 403)
        call.make()

    def _write(self, write: Any, name: str, body: Mapping[str, Any]) -> Reply:
        """Write a schedule that AWS would take. Return the refusal of another."""
        try:
            request = checked_request("CreateSchedule", {**body, "Name": name}, "scheduler")
            self._check(request)
        except AwsError as error:
            return error_reply(error)
        reply: Reply = write(name, request)
        return reply

    def _check(self, request: Mapping[str, Any]) -> None:
        try:
            occurrences(request, datetime.now(UTC), self._pace)
        except ScheduleError as error:
            raise validation_error(
                f"Invalid Schedule Expression {request['ScheduleExpression']}. ({error})"
            ) from error
        target = request["Target"]
        self._targets.call_of(target)
        if not may_assume(str(target["RoleArn"]), SERVICE, group_arn()):
            raise validation_error(
                "The execution role you provide must allow AWS EventBridge Scheduler to assume the"
                " role."
            )


def group_arn() -> str:
    """Return the ARN of the present account's group of schedules, the source of their calls."""
    return f"arn:aws:scheduler:{region()}:{account_id()}:schedule-group/{DEFAULT_GROUP}"


def _create_resource(logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
    name = properties.get("Name") or provisioners._physical_name(stack, logical_id, max_len=64)
    _require(scheduler._create_schedule(name, dict(properties)))
    return name, {"Arn": scheduler._schedule_arn(DEFAULT_GROUP, name)}


def _update_resource(
    physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], stack: str
) -> Any:
    _require(scheduler._update_schedule(physical_id, dict(new)))
    return physical_id, {"Arn": scheduler._schedule_arn(DEFAULT_GROUP, physical_id)}


def _require(reply: Reply) -> None:
    """Raise the reason that CloudFormation shows where a schedule was refused."""
    status, headers, body = reply
    if status >= 300:
        kind = headers.get("x-amzn-ErrorType", headers.get("x-amzn-errortype", ""))
        raise ValueError(f"Resource handler returned message: {body.decode()} ({kind})")

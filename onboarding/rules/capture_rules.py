"""Scheduled comparisons of captures: a schedule that repeats, of one model, of a task that can."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.hosting_spec import CAPTURE_TASKS
from onboarding.model_spec import EndpointSpec
from onboarding.rules.rule import EndpointCase, ModelCase, rule, rules_of
from onboarding.schedule import runs_within_an_hour, schedule_fault

_ALLOWED = "rate(1 hour), rate(1 day), cron(0 4 * * ? *) and the like, once an hour at most"


@rule("data_capture")
def capture_check_has_a_schedule(case: EndpointCase) -> Iterator[Fault]:
    """EventBridge Scheduler refuses another one when the stack is deployed."""
    capture = case.spec.data_capture
    if capture is None or capture.check is None:
        return
    text = capture.check.schedule
    wrong = schedule_fault(text)
    if wrong is None and text.startswith("at("):
        wrong = "comes once, and what users send changes later"
    if wrong is not None:
        yield case.document.at("data_capture", "check", "schedule").fault(
            f"'data_capture.check.schedule' {wrong}",
            value=text,
            allowed=_ALLOWED,
            way_out="correct it",
        )


@rule("data_capture")
def capture_check_comes_once_an_hour(case: EndpointCase) -> Iterator[Fault]:
    """Captures lie by the hour, and a comparison takes a machine for minutes."""
    capture = case.spec.data_capture
    if capture is None or capture.check is None:
        return
    text = capture.check.schedule
    if schedule_fault(text) is None and not text.startswith("at(") and runs_within_an_hour(text):
        yield case.document.at("data_capture", "check", "schedule").fault(
            "'data_capture.check.schedule' may come more often than once an hour",
            value=text,
            allowed=_ALLOWED,
            way_out="write one minute of the hour in cron(…), or a rate of hours or days",
        )


@rule("data_capture")
def capture_check_is_of_one_model(case: EndpointCase) -> Iterator[Fault]:
    """A capture of a multi-model endpoint does not say which model answered."""
    capture = case.spec.data_capture
    if case.multi_model and capture is not None and capture.check is not None:
        yield case.document.at("data_capture", "check").fault(
            "captures of a multi-model endpoint are not compared: they do not name the model",
            way_out="take it out, or give each model an endpoint of its own",
        )


@rule("task", "endpoint")
def capture_check_is_of_a_compared_task(case: ModelCase) -> Iterator[Fault]:
    """`check-captures` reads the rows of texts, images and arrays alone."""
    endpoint = case.spec.endpoint
    capture = endpoint.data_capture if isinstance(endpoint, EndpointSpec) else None
    if capture is not None and capture.check is not None and case.spec.task not in CAPTURE_TASKS:
        yield case.document.at_change(("endpoint", "data_capture", "check"), ("task",)).fault(
            f"captures of task {case.spec.task} are not compared",
            value=case.spec.task,
            allowed=", ".join(CAPTURE_TASKS),
            way_out="take `check` out of endpoint.data_capture",
        )


MODEL_RULES = (capture_check_is_of_a_compared_task,)
RULES = tuple(item for item in rules_of(globals()) if item not in MODEL_RULES)

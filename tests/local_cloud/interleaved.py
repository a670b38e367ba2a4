"""Two threads that meet at the worst moment in the local cloud's own code.

Each function here is one such meeting.

It runs in the cloud's environment: `.venvs/cloud/bin/python -m tests.local_cloud.interleaved`
prints what each came to.
"""

import json
import tempfile
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

from local_cloud.settings import Settings, configure_emulator

SETTINGS = Settings(root=Path.cwd(), state=Path(tempfile.gettempdir()), port=1)
A_WHILE = 0.3
"""Seconds in which a thread that nothing holds up would be done."""


class LeavingTraffic:
    """Reads as an endpoint's traffic once, and as None ever after: it is deleted at that moment."""

    def __init__(self, traffic):
        self.left = [traffic]

    def __get__(self, owner, kind=None):
        return self.left.pop() if self.left else None

    def __set__(self, owner, value):
        pass


def leaving_endpoint(traffic):
    from local_cloud.sagemaker.hosting.endpoint import Endpoint

    kind = type("Leaving", (Endpoint,), {"traffic": LeavingTraffic(traffic)})
    return kind(name="e", arn="arn", config_name="c", status="InService", created=0.0, modified=0.0)


def an_endpoint_is_deleted_while_its_fleets_are_listed():
    fleet = SimpleNamespace(config={"AsyncInferenceConfig": {}}, production={}, config_name="c")
    traffic = SimpleNamespace(fleet=fleet, new=None)
    assert leaving_endpoint(traffic).fleets == (fleet,)
    assert leaving_endpoint(traffic).is_asynchronous


def an_endpoint_is_deleted_while_its_queue_is_looked_at():
    from local_cloud.sagemaker.runtime.asynchronous import Queue

    variant = SimpleNamespace(instances=["i"])
    traffic = SimpleNamespace(fleet=SimpleNamespace(config={}, production={"v": variant}), new=None)
    assert Queue(endpoint=leaving_endpoint(traffic)).instances() == 1
    assert Queue(endpoint=leaving_endpoint(traffic)).free_capacity() == 0


def an_endpoint_is_deleted_while_it_is_described():
    from local_cloud.sagemaker.describe import description

    traffic = SimpleNamespace(fleet=SimpleNamespace(config={}, production={}, shadow={}), new=None)
    assert description(leaving_endpoint(traffic), lambda name: None)["EndpointName"] == "e"


def a_second_request_is_captured_before_the_first_has_called_for_delivery():
    from local_cloud.sagemaker.runtime.capture import Captures

    config = {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "s3://b/p",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    served = SimpleNamespace(
        fleet=SimpleNamespace(config={"DataCaptureConfig": config}),
        variant=SimpleNamespace(name="v"),
    )
    invocation = SimpleNamespace(endpoint="e", headers={}, body=b"x")
    captures, called = Captures(SETTINGS), []
    captures._deliver_later = called.append
    captures._turn = BetweenTurns(lambda: captures.record(served, invocation, (200, {}, b"")))
    captures.record(served, invocation, (200, {}, b""))
    assert len(called) == 1, called
    assert [len(lines) for lines in captures._lines.values()] == [2]


class BetweenTurns:
    """A lock.

    Once it is free again, for the first time or a later one, something else takes its turn at once.
    """

    def __init__(self, other, turn=1):
        self.others = [other] + [lambda: None] * (turn - 1)

    def __enter__(self):
        return self

    def __exit__(self, *ended):
        if self.others:
            self.others.pop()()


def a_target_model_is_forgotten_as_soon_as_it_is_loaded():
    from local_cloud.containers.server_client import Response
    from local_cloud.sagemaker.hosting.multi_model import TargetModels

    client = SimpleNamespace(
        request=lambda *arguments, **more: Response(status=200, headers={}, body=b"")
    )
    models = TargetModels(client=client, prefix="s3://b/", folder=Path())
    models._fetch = lambda name, target_model: None
    # Twice it is looked for, once it is put in its place; then another request hears 404.
    models._turn = BetweenTurns(lambda: models._loaded.clear(), turn=3)
    assert models.invoke("m", b"", {}, 1.0)[0].status == 200
    assert models.loaded_count == 0 and set(models._in_use.values()) == {0}, models


def an_alarm_is_set_while_it_is_evaluated():
    from local_cloud.cloudwatch.alarms import Alarms

    class SetOnceSeen(dict):
        def __getitem__(self, name):
            seen = super().__getitem__(name)
            if name == "StateValue":
                self["StateValue"] = "ALARM"
            return seen

    alarm = SetOnceSeen(
        AlarmName="a",
        StateValue="OK",
        ComparisonOperator="GreaterThanThreshold",
        Threshold=1,
        TreatMissingData="ignore",
    )
    Alarms(seconds_per_minute=1.0, act=lambda *call: None).evaluate(alarm, 100.0)
    assert alarm["StateValue"] == "ALARM"
    assert alarm.get("StateReason") is None


def values_are_read_while_the_minute_that_drained_them_is_storing_them():
    from ministack.services import cloudwatch

    from local_cloud.cloudwatch import metric_store as store
    from local_cloud.sagemaker.metrics.invocation_metrics import InvocationMetrics, publisher

    drained, go_on, seen = threading.Event(), threading.Event(), []
    drain = publisher.buffer.drain

    def drain_and_wait(now=None):
        drained_values = list(drain(now))
        drained.set()
        go_on.wait()
        return iter(drained_values)

    InvocationMetrics(endpoint="e", variant="v").record(
        status=200, model_seconds=0.1, overhead_seconds=0.1
    )
    publisher.buffer.drain = drain_and_wait
    minute = threading.Thread(target=publisher.flush)
    minute.start()
    drained.wait()
    publisher.buffer.drain = drain
    reader = threading.Thread(
        target=lambda: (publisher.flush(), seen.append(len(store.list_metrics())))
    )
    reader.start()
    reader.join(A_WHILE)
    go_on.set()
    minute.join()
    reader.join()
    assert seen and seen[0] > 0, (seen, dict(cloudwatch._metrics.items()))


def a_job_ends_while_it_is_stopped():
    from local_cloud.sagemaker.training.training_run import TrainingRun, new_record

    class EndingMeanwhile(threading.Event):
        def set(self):
            super().set()
            ending.start()
            ending.join(A_WHILE)

    run = TrainingRun(
        record=new_record({"TrainingJobName": "j"}, "arn"),
        account="",
        region="",
        folder=Path(),
        settings=SETTINGS,
        capacity=None,
        stopped=EndingMeanwhile(),
    )
    ending = threading.Thread(target=run._finish, args=("Completed", ""))
    run.stop()
    ending.join()
    assert run.ended.is_set() and run.record["TrainingJobStatus"] == "Stopped", run.record


def an_endpoint_begins_to_scale_before_its_stack_changes_it():
    from local_cloud.cloudformation.resource_types import EndpointType
    from local_cloud.sagemaker.hosting.endpoint import Endpoint
    from local_cloud.sagemaker.hosting.endpoints import InProgress

    endpoint = Endpoint(
        name="e", arn="arn:x/e", config_name="1", status="InService", created=0.0, modified=0.0
    )
    endpoint.become("InService")
    names = []

    def refusing_once(request):
        names.append(request["EndpointName"])
        if len(names) % 2:
            raise InProgress("ValidationException", "Cannot update in-progress endpoint")
        return {}

    endpoints = SimpleNamespace(
        endpoints={"e": endpoint},
        endpoint_named=lambda name: endpoint,
        wait=lambda item: item.settled.wait(),
    )
    tags = SimpleNamespace(begin=lambda *given: None)
    plane = SimpleNamespace(
        actions={"UpdateEndpoint": refusing_once, "DeleteEndpoint": refusing_once},
        endpoints=endpoints,
        tags=tags,
    )
    endpoint_type = EndpointType(plane)
    endpoint_type.update(
        "arn:x/e", {"EndpointConfigName": "1"}, {"EndpointConfigName": "2"}, "stack"
    )
    endpoint_type.delete("arn:x/e", {})
    assert names == ["e"] * 4


def an_endpoint_settles_while_its_scaling_is_followed():
    from local_cloud.application_autoscaling.actor import follow_activity
    from local_cloud.application_autoscaling.records import Activity

    endpoint = SimpleNamespace(status="Updating", failure_reason=None)

    def capacity(key):
        endpoint.status = "InService"
        return 1, 3

    resources = SimpleNamespace(state=lambda key: endpoint, capacity=capacity)
    key = SimpleNamespace(noun="instance", resource_id="endpoint/e/variant/v")
    activity = Activity(key=key, description="", cause="", desired=3, before=1)
    follow_activity(resources, activity, None)
    assert activity.status == "InProgress", activity.message


MEETINGS = (
    a_target_model_is_forgotten_as_soon_as_it_is_loaded,
    an_endpoint_settles_while_its_scaling_is_followed,
    an_endpoint_is_deleted_while_its_fleets_are_listed,
    an_endpoint_is_deleted_while_its_queue_is_looked_at,
    an_endpoint_is_deleted_while_it_is_described,
    a_second_request_is_captured_before_the_first_has_called_for_delivery,
    an_alarm_is_set_while_it_is_evaluated,
    values_are_read_while_the_minute_that_drained_them_is_storing_them,
    a_job_ends_while_it_is_stopped,
    an_endpoint_begins_to_scale_before_its_stack_changes_it,
)


def outcome(meeting):
    """What went wrong; None when nothing did."""
    try:
        meeting()
    except Exception:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    configure_emulator(SETTINGS)
    print(json.dumps({meeting.__name__: outcome(meeting) for meeting in MEETINGS}))

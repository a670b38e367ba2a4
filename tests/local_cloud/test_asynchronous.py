"""Asynchronous endpoints.

Requests wait for an instance, answers lie in S3, topics hear of both outcomes.
"""

import json

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    BUCKET,
    CREATED,
    endpoint_resources,
    until,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def waiting(cloud):
    """An asynchronous endpoint, and the queue that hears its notifications."""
    topics = {
        name: cloud.client("sns").create_topic(Name=name)["TopicArn"]
        for name in ("answers", "failures")
    }
    sqs = cloud.client("sqs")
    queue = sqs.create_queue(QueueName="answers")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    arn = attributes["Attributes"]["QueueArn"]
    for topic in topics.values():
        cloud.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    resources = endpoint_resources("waits", cloud.put_archive("waits.tar.gz", "hi"))
    resources["Config"]["Properties"]["AsyncInferenceConfig"] = {
        "ClientConfig": {"MaxConcurrentInvocationsPerInstance": "2"},
        "OutputConfig": {
            "S3OutputPath": f"s3://{BUCKET}/answers/",
            "S3FailurePath": f"s3://{BUCKET}/failures",
            "NotificationConfig": {
                "SuccessTopic": topics["answers"],
                "ErrorTopic": topics["failures"],
            },
        },
    }
    assert cloud.deploy("waits", resources) == CREATED

    def heard(inference_id):
        def message():
            received = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
            for item in received.get("Messages", []):
                envelope = json.loads(item["Body"])
                message = json.loads(envelope["Message"])
                topic = envelope["TopicArn"].rpartition(":")[2]
                messages[message["inferenceId"]] = {"topic": topic, **message}
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=item["ReceiptHandle"])
            return messages.get(inference_id)

        return until(message)

    messages = {}
    yield heard
    cloud.destroy("waits")
    assert wait_until_gone("waits")


def ask(cloud, body=b"hello", **options):
    cloud.client("s3").put_object(Bucket=BUCKET, Key="asked/input", Body=body)
    return cloud.client("sagemaker-runtime").invoke_endpoint_async(
        EndpointName="waits",
        InputLocation=f"s3://{BUCKET}/asked/input",
        ContentType="text/plain",
        **options,
    )


def read(cloud, location):
    """An object, once it is there."""
    bucket, _, key = location.removeprefix("s3://").partition("/")

    def content():
        try:
            return cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError:
            return None

    return until(content)


def test_answer_lies_where_the_reply_says_and_the_topic_hears_of_it(cloud, waiting):
    accepted = ask(cloud, InferenceId="first")
    assert accepted["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert accepted["OutputLocation"].startswith(f"s3://{BUCKET}/answers/")
    answer = json.loads(read(cloud, accepted["OutputLocation"]))
    actual = (answer["greeting"], answer["body"], answer["content_type"])
    assert actual == ("hi", "hello", "text/plain")
    message = waiting("first")
    actual = (message["topic"], message["invocationStatus"], message["eventName"])
    assert actual == ("answers", "Completed", "InferenceResult")
    assert message["responseParameters"]["outputLocation"] == accepted["OutputLocation"]
    assert message["requestParameters"]["endpointName"] == "waits"


def test_failure_lies_where_the_reply_says_and_the_topic_hears_why(cloud, waiting):
    accepted = ask(cloud, b"fault", InferenceId="second")
    assert b"that is no question" in read(cloud, accepted["FailureLocation"])
    message = waiting("second")
    assert (message["topic"], message["invocationStatus"]) == ("failures", "Failed")
    assert "that is no question" in message["failureReason"]


def test_requests_wait_while_there_is_no_instance_and_are_answered_when_one_comes(cloud, waiting):
    cloud.set_counts("waits", 0)
    cloud.wait_for("waits")
    assert wait_until_gone("waits")
    accepted = [ask(cloud) for _ in range(5)]
    metrics = {
        "Namespace": "AWS/SageMaker",
        "Dimensions": [{"Name": "EndpointName", "Value": "waits"}],
    }

    backlog = {"ApproximateBacklogSize", "HasBacklogWithoutCapacity"}
    list_metrics = cloud.client("cloudwatch").list_metrics
    until(lambda: backlog <= {m["MetricName"] for m in list_metrics(**metrics)["Metrics"]})
    key = accepted[0]["OutputLocation"].partition(f"{BUCKET}/")[2]
    with pytest.raises(ClientError):
        cloud.client("s3").get_object(Bucket=BUCKET, Key=key)
    cloud.set_counts("waits", 1)
    for reply in accepted:
        assert json.loads(read(cloud, reply["OutputLocation"]))["greeting"] == "hi"

"""The metrics of endpoints in CloudWatch; a minute lasts a second here."""

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import CREATED, endpoint_resources, refusal, until
from tests.local_cloud.paced import paced_load

pytestmark = pytest.mark.local_cloud
ENDPOINT = "measured"
EVER = 4_000_000_020
"""One period that no midnight divides."""
HOSTS = "/aws/sagemaker/Endpoints"


def dimensions(endpoint=ENDPOINT):
    values = {"EndpointName": endpoint, "VariantName": "AllTraffic"}
    return [{"Name": name, "Value": value} for name, value in values.items()]


@pytest.fixture(scope="module")
def busy_endpoint(cloud):
    """Two instances, asked thirty times; six requests are refused by the model."""
    url = cloud.put_archive(f"{ENDPOINT}.tar.gz", "hi")
    resources = endpoint_resources(ENDPOINT, url, InitialInstanceCount=2)
    resources["Config"]["Properties"]["MetricsConfig"] = {"EnableEnhancedMetrics": True}
    assert cloud.deploy(ENDPOINT, resources) == CREATED
    for number in range(24):
        cloud.invoke(ENDPOINT, b"wait 0.1" if number < 2 else b"hello")
    for _ in range(6):
        with pytest.raises(ClientError, match="that is no question"):
            cloud.invoke(ENDPOINT, b"fault")
    yield cloud
    cloud.destroy(ENDPOINT)


def span():
    now = datetime.now(UTC)
    return {"StartTime": now - timedelta(hours=1), "EndTime": now + timedelta(seconds=1)}


def statistics_of(
    cloud, name, *statistics, namespace="AWS/SageMaker", extended=(), endpoint=ENDPOINT
):
    """A metric's statistics over the last minutes as one period."""
    options = (
        {"ExtendedStatistics": list(extended)} if extended else {"Statistics": list(statistics)}
    )
    points = cloud.client("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=name,
        Dimensions=dimensions(endpoint),
        Period=EVER,
        **span(),
        **options,
    )["Datapoints"]
    return points[0] if points else {}


def query(name, metric, statistic, **more):
    metric = {"Namespace": "AWS/SageMaker", "MetricName": metric, "Dimensions": dimensions()}
    return {"Id": name, "MetricStat": {"Metric": metric, "Period": EVER, "Stat": statistic}, **more}


def computed(cloud, queries):
    """The results of GetMetricData."""
    reply = cloud.client("cloudwatch").get_metric_data(MetricDataQueries=queries, **span())
    return reply["MetricDataResults"]


def test_invocations_are_counted_whole_and_per_instance(busy_endpoint):
    assert statistics_of(busy_endpoint, "Invocations", "Sum")["Sum"] == 30
    assert statistics_of(busy_endpoint, "InvocationsPerInstance", "Sum")["Sum"] == pytest.approx(15)


def test_errors_are_counted_by_side(busy_endpoint):
    assert statistics_of(busy_endpoint, "Invocation4XXErrors", "Sum", "Average")["Sum"] == 6
    assert statistics_of(busy_endpoint, "Invocation4XXErrors", "Average")[
        "Average"
    ] == pytest.approx(0.2)
    assert statistics_of(busy_endpoint, "Invocation5XXErrors", "Sum")["Sum"] == 0
    assert statistics_of(busy_endpoint, "InvocationModelErrors", "Sum")["Sum"] == 6


def test_latency_is_in_microseconds_with_percentiles(busy_endpoint):
    found = statistics_of(busy_endpoint, "ModelLatency", "Maximum", "SampleCount")
    assert found["SampleCount"] == 30
    assert 100_000 < found["Maximum"] < 10_000_000
    percentiles = statistics_of(busy_endpoint, "ModelLatency", extended=("p50", "p99"))[
        "ExtendedStatistics"
    ]
    assert percentiles["p50"] < 90_000 < percentiles["p99"]
    assert statistics_of(busy_endpoint, "OverheadLatency", "Average")["Average"] < 1_000_000


def test_get_metric_data_computes_expressions(busy_endpoint):
    queries = [
        query("errors", "Invocation4XXErrors", "Sum", ReturnData=False),
        query("requests", "Invocations", "Sum", ReturnData=False),
        query("p99", "ModelLatency", "p99", ReturnData=False),
        {"Id": "share", "Expression": "100 * errors / requests", "Label": "errors (%)"},
        {"Id": "ms", "Expression": "IF(requests > 0, p99 / 1000, 0)"},
        {"Id": "none", "Expression": "FILL(errors, 0) * 0"},
    ]
    results = computed(busy_endpoint, queries)
    actual = [(result["Id"], result["Label"]) for result in results]
    assert actual == [("share", "errors (%)"), ("ms", "ms"), ("none", "none")]
    assert results[0]["Values"] == pytest.approx([20.0])
    assert 90 < results[1]["Values"][0] < 10_000
    assert set(results[2]["Values"]) == {0.0}


def test_refuses_an_expression_that_cannot_be_read(busy_endpoint):
    with refusal("unknown metric id 'm9'", "ValidationError"):
        computed(busy_endpoint, [{"Id": "e", "Expression": "m9 / 2"}])


def test_search_finds_the_metrics_of_an_endpoint(busy_endpoint):
    text = (
        '{AWS/SageMaker,EndpointName,VariantName} MetricName="Invocations" '
        f'EndpointName="{ENDPOINT}"'
    )
    queries = [{"Id": "e", "Expression": f"SUM(SEARCH('{text}', 'Sum', {EVER}))"}]
    results = computed(busy_endpoint, queries)
    assert results[0]["Values"] == [30.0]


def test_every_instance_s_use_is_sampled(busy_endpoint):
    def sampled():
        found = statistics_of(
            busy_endpoint, "MemoryUtilization", "SampleCount", "Average", namespace=HOSTS
        )
        return found if found.get("SampleCount", 0) >= 2 else None

    assert 0 < until(sampled)["Average"] < 100
    assert (
        statistics_of(busy_endpoint, "DiskUtilization", "Maximum", namespace=HOSTS)["Maximum"] < 100
    )
    listed = busy_endpoint.client("cloudwatch").list_metrics(Namespace=HOSTS)["Metrics"]
    assert not any(metric["MetricName"].startswith("GPU") for metric in listed)


def test_each_instance_has_metrics_of_its_own_where_they_are_enhanced(busy_endpoint):
    def instance_ids():
        listed = busy_endpoint.client("cloudwatch").list_metrics(
            Namespace=HOSTS, MetricName="MemoryUtilization"
        )
        named = [
            {item["Name"]: item["Value"] for item in metric["Dimensions"]}
            for metric in listed["Metrics"]
        ]
        found = {
            item["InstanceId"]
            for item in named
            if item["EndpointName"] == ENDPOINT and "InstanceId" in item
        }
        return found if len(found) > 1 else None

    found = until(instance_ids)
    assert len(found) == 2 and all(name.startswith("i-") for name in found)


def test_processor_time_is_real(busy_endpoint):
    """A busy second shows: the load alone makes the difference."""

    def busy():
        found = statistics_of(busy_endpoint, "CPUUtilization", "Maximum", namespace=HOSTS)
        return found.get("Maximum", 0) > 1

    with paced_load(lambda: busy_endpoint.invoke(ENDPOINT), 60):
        until(busy)


def test_requests_in_hand_are_sampled(busy_endpoint):

    def most():
        return statistics_of(busy_endpoint, "ConcurrentRequestsPerModel", "Maximum").get(
            "Maximum", 0
        )

    with paced_load(lambda: busy_endpoint.invoke(ENDPOINT, b"wait 0.3"), 8):
        until(lambda: most() >= 1)
    assert most() <= 8


def test_a_load_does_not_flood_the_store(busy_endpoint):
    """Hundreds of requests: a fine-grained answer would have as many points as requests."""
    with paced_load(lambda: busy_endpoint.invoke(ENDPOINT), 150) as answers:
        until(lambda: len(answers) >= 300)
    counted = statistics_of(busy_endpoint, "Invocations", "Sum", "SampleCount")
    assert counted["Sum"] >= len(answers) + 30
    assert counted["SampleCount"] >= counted["Sum"]


@pytest.fixture(scope="module")
def multi_model(cloud):
    """A multi-model endpoint whose server holds one model at a time.

    Each other model unloads the one before.
    """
    for name in ("one", "two"):
        cloud.put_archive(f"shared-metrics/{name}.tar.gz", name)
    resources = endpoint_resources(
        "shared-metrics",
        "s3://engines/shared-metrics/",
        mode="MultiModel",
        environment={"MODELS_HELD": "1"},
    )
    assert cloud.deploy("shared-metrics", resources) == CREATED
    for name in ("one", "one", "two", "one"):
        assert cloud.invoke("shared-metrics", TargetModel=f"{name}.tar.gz")["greeting"] == name
    yield cloud
    cloud.destroy("shared-metrics")


def shared_statistic(cloud, name, statistic, namespace="AWS/SageMaker"):
    found = statistics_of(cloud, name, statistic, namespace=namespace, endpoint="shared-metrics")
    return found.get(statistic)


def test_loads_and_unloads_of_models_are_timed(multi_model):
    assert shared_statistic(multi_model, "ModelCacheHit", "Average") == pytest.approx(0.25)
    assert shared_statistic(multi_model, "ModelLoadingTime", "SampleCount") == 3
    assert shared_statistic(multi_model, "ModelDownloadingTime", "SampleCount") == 3
    assert shared_statistic(multi_model, "ModelUnloadingTime", "SampleCount") == 2
    waited = shared_statistic(multi_model, "ModelLoadingWaitTime", "Sum")
    parts = ("Loading", "Downloading", "Unloading")
    times = [shared_statistic(multi_model, f"Model{part}Time", "Sum") for part in parts]
    assert waited == pytest.approx(sum(times))


def test_loaded_models_are_counted(multi_model):
    assert until(lambda: shared_statistic(multi_model, "LoadedModelCount", "Maximum", HOSTS)) == 1

"""Minutes that have a sample of a host, of nine minutes of a second each, by what runs on it.

It runs in the cloud's environment: `.venvs/cloud/bin/python -m tests.local_cloud.host_samples`
prints them.
"""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from local_cloud.settings import Settings, configure_emulator

VARIANT = "AllTraffic"
HOSTS = {
    "copies of components": ({}, ()),
    "a model that nothing scales": ({"ModelName": "model"}, ()),
    "a scaled model": ({"ModelName": "model"}, (VARIANT,)),
}


def sampled_minutes(folder, spec, scaled):
    """Minutes with a value of the memory of one instance, in which nothing runs."""
    from local_cloud.ministack.account import Scoped
    from local_cloud.sagemaker.hosting.endpoint import Endpoint, Traffic
    from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet
    from local_cloud.sagemaker.metrics.host_metrics import Hosts
    from local_cloud.sagemaker.metrics.invocation_metrics import publisher

    instance = SimpleNamespace(id="i-0", processes=(), folder=folder, target_models=None)
    variant = VariantFleet(
        spec={"VariantName": VARIANT, **spec}, host=None, folder=folder, weight=1, desired=1,
        instances=[instance],
    )  # fmt: skip
    fleet = Fleet(
        config_name="config", config={}, folder=folder, production={VARIANT: variant}, shadow={}
    )
    endpoints = Scoped()
    endpoints["chat"] = Endpoint(
        name="chat", arn="", config_name="config", status="InService", created=0.0, modified=0.0,
        traffic=Traffic(fleet=fleet),
    )  # fmt: skip
    hosts = Hosts(endpoints, lambda _: scaled)
    publisher.seconds_per_minute = 1.0
    for ended in range(101, 110):
        hosts.sample_minute(ended - 1, ended)
    gathered = [item.metric.name for item in publisher.buffer.drain()]
    return gathered.count("MemoryUtilization")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        configure_emulator(Settings(root=Path.cwd(), state=Path(name), port=1))
        found = {what: sampled_minutes(Path(name), *given) for what, given in HOSTS.items()}
    print(json.dumps(found))

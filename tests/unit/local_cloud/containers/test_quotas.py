"""How many instances there are: any number, unless the file says otherwise."""

import pytest

from local_cloud.containers.quotas import (
    CAPACITY_FILE,
    Capacity,
    CapacityFileError,
    InsufficientCapacity,
    check_endpoint_quotas,
    service_quotas,
)
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit


def test_there_is_any_number_without_a_file(tmp_path):
    capacity = Capacity(tmp_path)
    assert {capacity.take(("ml.g5.xlarge", "ml.g6.xlarge")) for _ in range(100)} == {"ml.g5.xlarge"}


def test_next_type_is_taken_when_the_first_is_used_up_and_again_when_given_back(tmp_path):
    (tmp_path / "capacity.yaml").write_text("ml.g5.xlarge: 1\nml.g6.xlarge: 1\n")
    capacity = Capacity(tmp_path)
    types = ("ml.g5.xlarge", "ml.g6.xlarge")
    assert [capacity.take(types), capacity.take(types)] == ["ml.g5.xlarge", "ml.g6.xlarge"]
    with pytest.raises(InsufficientCapacity, match="due to InsufficientInstanceCapacity error"):
        capacity.take(types)
    capacity.give_back("ml.g5.xlarge")
    assert capacity.take(types) == "ml.g5.xlarge"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read as YAML .*: correct or remove it"),
        (b"\xff\xfe\x00", "cannot be read as YAML"),
        (
            b"- ml.g5.xlarge",
            r"must map instance types to counts, such as `ml.g5.xlarge: 1`, found "
            r"\['ml.g5.xlarge'\]",
        ),
        (
            b"ml.g5.xlarge: -1\nml.g6.xlarge: many",
            "whole number from 0 on, found ml.g5.xlarge: -1, ml.g6.xlarge: 'many'",
        ),
        (b"ml.g5.xlarge: true", "whole number from 0 on, found ml.g5.xlarge: True"),
        (b"ml.g5.xlarge: 1.5", "whole number from 0 on, found ml.g5.xlarge: 1.5"),
    ],
)
def test_refuses_a_file_that_says_no_counts_and_takes_nothing(tmp_path, content, message):
    capacity = Capacity(tmp_path)
    (tmp_path / CAPACITY_FILE).write_bytes(content)
    with pytest.raises(CapacityFileError, match=message) as error:
        capacity.take(("ml.g5.xlarge",))
    assert isinstance(error.value, InsufficientCapacity) and str(tmp_path / CAPACITY_FILE) in str(
        error.value
    )
    (tmp_path / CAPACITY_FILE).write_text("ml.g5.xlarge: 1\n")
    assert capacity.take(("ml.g5.xlarge",)) == "ml.g5.xlarge"


def test_quotas_of_endpoints_count_what_runs_and_what_is_added(tmp_path):
    (tmp_path / CAPACITY_FILE).write_text(
        "ml.g5.xlarge for endpoint usage: 3\nNumber of instances across active endpoints: 5\n"
        "ml.g6.xlarge: 1\n"
    )
    assert set(service_quotas(tmp_path)) == {
        "ml.g5.xlarge for endpoint usage", "Number of instances across active endpoints"
    }  # fmt: skip
    check_endpoint_quotas(tmp_path, {"ml.g5.xlarge": 2}, {"ml.g5.xlarge": 1, "ml.g6.xlarge": 2})
    # Fewer instances are never refused.
    check_endpoint_quotas(tmp_path, {"ml.g5.xlarge": 9}, {"ml.g5.xlarge": -1})
    for running, added, name in (
        ({"ml.g5.xlarge": 2}, {"ml.g5.xlarge": 2}, "'ml.g5.xlarge for endpoint usage' is 3"),
        ({"ml.g6.xlarge": 4}, {"ml.g6.xlarge": 2}, "'Number of instances across .* is 5"),
    ):
        with pytest.raises(
            AwsError, match=f"{name} .*utilization of {sum(running.values())} "
        ) as e:
            check_endpoint_quotas(tmp_path, running, added)
        assert e.value.code == "ResourceLimitExceeded"

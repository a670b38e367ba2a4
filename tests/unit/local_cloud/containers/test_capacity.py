"""How many instances there are: any number, unless the file says otherwise."""

import pytest

from local_cloud.containers.capacity import (
    CAPACITY_FILE,
    Capacity,
    CapacityFileError,
    InsufficientCapacity,
)

pytestmark = pytest.mark.unit
TYPES = ("ml.g5.xlarge", "ml.g6.xlarge")


def test_next_type_is_taken_when_the_first_is_used_up_and_again_when_given_back(tmp_path):
    capacity = Capacity(tmp_path)
    assert {capacity.take(TYPES) for _ in range(100)} == {"ml.g5.xlarge"}
    capacity = Capacity(tmp_path)
    (tmp_path / CAPACITY_FILE).write_text("ml.g5.xlarge: 1\nml.g6.xlarge: 1\n")
    assert [capacity.take(TYPES), capacity.take(TYPES)] == list(TYPES)
    with pytest.raises(InsufficientCapacity, match="due to InsufficientInstanceCapacity error"):
        capacity.take(TYPES)
    capacity.give_back("ml.g5.xlarge")
    assert capacity.take(TYPES) == "ml.g5.xlarge"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read as YAML .*: correct or remove it"),
        (b"\xff\xfe\x00", "cannot be read as YAML"),
        (b"- ml.g5.xlarge", r"must map instance types to counts, such as .*\['ml.g5.xlarge'\]"),
        (b"ml.g5.xlarge: -1\nml.g6.xlarge: many", "found ml.g5.xlarge: -1, ml.g6.xlarge: 'many'"),
        (b"ml.g5.xlarge: true", "whole number from 0 on, found ml.g5.xlarge: True"),
    ],
)
def test_refuses_a_file_that_says_no_counts(tmp_path, content, message):
    (tmp_path / CAPACITY_FILE).write_bytes(content)
    with pytest.raises(CapacityFileError, match=message):
        Capacity(tmp_path).take(TYPES)

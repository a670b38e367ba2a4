"""How many instances there are: any number, unless the file says otherwise."""

import pytest

from workbench.local_cloud.capacity import Capacity, InsufficientCapacity

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

"""What is served of an archive."""

import pytest

from container.server.data_plane.model import servable_model
from container.server.settings import Settings
from tests.unit.container.engines.plan_archives import tensor_archive


@pytest.mark.parametrize(("sequence", "length"), [((16, 64, 128), 16), (None, 3)])
def test_probe_of_tensors_has_a_length_that_a_profile_takes(tmp_path, sequence, length):
    archive = tensor_archive(tmp_path, {}, (1, 8, 32), sequence=sequence)
    (row,) = servable_model(archive, Settings(), lambda: None).probe
    assert [array.shape for array in row] == [(length,), (1,)]

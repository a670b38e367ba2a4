"""What batches cost."""

from __future__ import annotations

import pytest

from container.server.engines.engine import BucketCosts, LinearCosts


def test_linear_costs_count_padding():
    assert LinearCosts(fixed_seconds=2, seconds_per_token=0.5).seconds(3, 10) == pytest.approx(17)


@pytest.mark.parametrize(
    ("rows", "longest", "bucket"),
    [(1, 1, 1), (1, 16, 1), (2, 16, 3), (1, 17, 2), (2, 17, 4), (9, 99, 4)],
)
def test_bucket_costs_are_those_of_the_smallest_bucket_that_takes_the_batch(rows, longest, bucket):
    costs = BucketCosts(
        rows=(1, 4), lengths=(16, 32), measured={(1, 16): 1, (1, 32): 2, (4, 16): 3, (4, 32): 4}
    )
    assert costs.seconds(rows, longest) == bucket

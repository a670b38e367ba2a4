"""The search of a grid on response surfaces that are computed, against brute force."""

from __future__ import annotations

import itertools
import random

import pytest

from roundhouse.compare.search import Grid, QuickSearch

BATCHES, DELAYS, INSTANCES = (1, 2, 4, 8, 16, 32, 64), (0, 100, 500, 2000), (1, 2, 3, 4)
SIZES = (len(BATCHES), len(DELAYS), len(INSTANCES))
FILE = (5, 0, 0)
"""What a model file without `serving` has: its largest batch, no delay, one instance."""
BUDGET = 28


def grid(sizes, is_ordered=None, names=None):
    points = list(itertools.product(*map(range, sizes)))
    return Grid(
        sizes=tuple(sizes),
        is_ordered=tuple(is_ordered or [True] * len(sizes)),
        names=names or {point: "-".join(map(str, point)) for point in points},
    )


def search(surface, space, start, budget=BUDGET):
    """Run one search of a surface; return it with its groups of points."""
    groups, points = [], {}
    for point, name in space.names.items():
        points.setdefault(name, point)

    def measure(names):
        groups.append(list(names))
        return {name: surface(points[name]) for name in names}

    quick = QuickSearch(grid=space, budget=budget, measure=measure)
    quick.run(start)
    return quick, groups


def server(seed):
    """Return a server's surface: batches cost less a row, instances share a GPU, waiting is late.

    Rates within an SLO; a latency above it holds nothing.
    """
    chance = random.Random(seed)
    fixed, row = chance.uniform(1, 8), chance.uniform(0.05, 0.6)
    shared, slo = chance.uniform(0.2, 1.0), chance.uniform(20, 120)

    def score(point):
        batch, delay, copies = BATCHES[point[0]], DELAYS[point[1]], INSTANCES[point[2]]
        run = (fixed + row * batch) * (1 + shared * (copies - 1))
        latency = 2 * run + delay / 1000
        filled = batch / (1 + 0.3 / (1 + delay / 200))
        return (latency <= slo, copies * filled / run * 1000 if latency <= slo else -latency)

    return score


@pytest.mark.parametrize("seed", range(60))
def test_a_quarter_of_the_grid_finds_nearly_the_best_of_all(seed):
    surface, space = server(seed), grid(SIZES)
    best = max(surface(point) for point in space.names)
    quick, _ = search(surface, space, FILE)
    holds, found = max(quick.scores.values())
    assert len(quick.scores) <= BUDGET and holds == best[0]
    assert not holds or found >= 0.85 * best[1]


def test_most_servers_have_their_very_best_found():
    hits = 0
    for seed in range(60):
        surface, space = server(seed), grid(SIZES)
        quick, _ = search(surface, space, FILE)
        hits += max(quick.scores.values()) == max(surface(point) for point in space.names)
    assert hits >= 50


@pytest.mark.parametrize("top", [(0, 0, 0), (6, 3, 3), (3, 0, 2), (0, 3, 1)])
@pytest.mark.parametrize("start", [(0, 0, 0), (6, 3, 3), (2, 1, 0)])
def test_one_summit_is_reached_from_anywhere(top, start):
    def surface(point):
        return True, 100.0 - sum((a - b) ** 2 for a, b in zip(point, top, strict=True))

    quick, _ = search(surface, grid(SIZES), start, budget=112)
    assert max(quick.scores, key=quick.scores.get) == "-".join(map(str, top))


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 8])
def test_no_more_is_measured_than_the_budget_and_nothing_twice(budget):
    quick, groups = search(server(1), grid(SIZES), (2, 0, 0), budget=budget)
    measured = [name for group in groups for name in group]
    assert len(measured) == len(set(measured)) == len(quick.scores) == budget
    assert measured[0] == "2-0-0"


def test_equal_scores_give_the_same_cells_in_the_same_order():
    first = search(server(7), grid(SIZES), (0, 0, 0))[1]
    assert first == search(server(7), grid(SIZES), (0, 0, 0))[1]


def test_a_flat_surface_ends_with_the_neighbours_of_the_start():
    quick, groups = search(lambda point: (True, 5.0), grid(SIZES), (0, 0, 0), budget=112)
    assert len(quick.scores) <= 10 and len(groups) <= 3


def test_values_without_an_order_are_all_neighbours():
    def surface(point):
        return True, (10.0, 1.0, 50.0)[point[0]] + point[1]

    space = grid((3, 4), [False, True])
    quick, _ = search(surface, space, (0, 0), budget=12)
    assert max(quick.scores, key=quick.scores.get) == "2-3"


def test_what_fails_is_passed_over():
    def surface(point):
        return (False, float("-inf")) if point == (0, 0) else (True, float(sum(point)))

    quick, _ = search(surface, grid((4, 4)), (0, 0), budget=16)
    assert max(quick.scores, key=quick.scores.get) == "3-3"


def test_where_nothing_holds_the_least_late_is_sought():
    def surface(point):
        return False, -100.0 - 10 * sum(point)

    quick, _ = search(surface, grid((4, 4)), (3, 3), budget=16)
    assert max(quick.scores, key=quick.scores.get) == "0-0"


def test_points_that_are_one_cell_are_measured_once():
    names = {
        (place, batch): "single" if place == 0 else f"batch{batch}"
        for place in range(2)
        for batch in range(4)
    }
    quick, groups = search(
        lambda point: (True, float(point[0] * (1 + point[1]))), grid((2, 4), names=names), (1, 0), 8
    )
    measured = [name for group in groups for name in group]
    assert len(measured) == len(set(measured)) and "batch3" in quick.scores

"""Graphs of workflows are drawn in layers, without boxes over each other, and bounded."""

from __future__ import annotations

from raftsched.client.records import Edge, TaskInfo
from raftsched.dashboard.graph_layout import NODES_MAX, Drawing, drawing_of


def _drawn(*edges: tuple[str, str], count: int = 0) -> Drawing:
    names = dict.fromkeys([*(name for edge in edges for name in edge), *(str(number) for number in range(count))])
    order: list[str] = []
    while len(order) < len(names):  # parents first, as the API lists them
        order += [
            name
            for name in names
            if name not in order and all(parent in order for parent, child in edges if child == name)
        ]
    nodes = [TaskInfo(id=name, task=name, status="queued") for name in order]
    return drawing_of(nodes, [Edge(parent=parent, child=child) for parent, child in edges])


def test_children_are_to_the_right_of_all_their_parents_and_no_box_is_over_another() -> None:
    drawing = _drawn(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("c", "e"), ("x", "e"))
    x = {box.node.id: box.x for box in drawing.boxes}
    assert x["a"] == x["x"] < x["b"] == x["c"] < x["d"] == x["e"]
    places = [(box.x, box.y) for box in drawing.boxes]
    assert len({*places}) == len(places) == 6
    assert len(drawing.lines) == 7
    assert all(0 <= x < drawing.width and 0 <= y < drawing.height for x, y in places)


def test_layers_are_ordered_so_that_lines_of_a_ladder_do_not_cross() -> None:
    pairs = [(f"p{number}", f"c{4 - number}") for number in range(5)]
    y = {box.node.id: box.y for box in _drawn(*pairs).boxes}
    parents = sorted((f"p{number}" for number in range(5)), key=y.__getitem__)
    assert [dict(pairs)[parent] for parent in parents] == sorted(dict(pairs).values(), key=y.__getitem__)


def test_a_drawing_is_bounded_and_counts_what_leads_out_of_it() -> None:
    drawing = _drawn(count=NODES_MAX + 50)
    assert len(drawing.boxes) == NODES_MAX
    outside = drawing_of([TaskInfo(id="a", task="t" * 60)], [Edge(parent="elsewhere", child="a")])
    assert (outside.outside_count, outside.lines, len(outside.boxes[0].label)) == (1, [], 22)
    assert drawing_of([], []).boxes == []

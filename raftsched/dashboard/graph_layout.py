"""Arrange the jobs of a workflow in layers: each job is in the layer after the last of its parents.

After Sugiyama, Tagawa & Toda 1981: layers by the longest path, and within a layer the order of the mean place of the
parents, then of the children, so that few lines cross. A page has at most `NODES_MAX` jobs, so this takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from raftsched.client.records import Edge, TaskInfo

NODES_MAX: Final = 200
_EDGES_MAX: Final = 1_500
_SWEEPS: Final = 4
_WIDTH: Final = 168
_HEIGHT: Final = 40
_BETWEEN_LAYERS: Final = 56
_BETWEEN_NODES: Final = 12
_MARGIN: Final = 8
_LABEL_CHARS: Final = 22
_CENTRED_ROWS_MAX: Final = 11
"""Rows that are seen at once: in a taller drawing all layers begin at the top."""


@dataclass(frozen=True, slots=True)
class Box:
    """A job in the drawing."""

    node: TaskInfo
    x: int
    y: int

    @property
    def label(self) -> str:
        text = self.node.task or self.node.name
        return text if len(text) <= _LABEL_CHARS else f"{text[: _LABEL_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class Line:
    """A dependency in the drawing."""

    path: str
    condition: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph with the place of everything, in pixels."""

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[Line]
    outside_count: int
    """Dependencies on jobs that are not in the drawing."""
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


def drawing_of(nodes: Sequence[TaskInfo], edges: Sequence[Edge]) -> Drawing:
    """Return the drawing of a page of a graph, whose nodes come parents first."""
    nodes = nodes[:NODES_MAX]
    known = {node.id: node for node in nodes}
    inside = [edge for edge in edges if edge.parent in known and edge.child in known]
    layers = _layers(nodes, inside)
    _untangle(layers, inside)
    places = _places(layers)
    lines = [Line(_path(places[edge.parent], places[edge.child]), edge.condition) for edge in inside[:_EDGES_MAX]]
    boxes = [Box(known[node_id], *place) for node_id, place in places.items()]
    rows = max((len(layer) for layer in layers), default=0)
    return Drawing(
        width=2 * _MARGIN + len(layers) * (_WIDTH + _BETWEEN_LAYERS) - _BETWEEN_LAYERS if layers else 0,
        height=2 * _MARGIN + rows * (_HEIGHT + _BETWEEN_NODES) - _BETWEEN_NODES if rows else 0,
        boxes=boxes,
        lines=lines,
        outside_count=sum(edge.child in known and edge.parent not in known for edge in edges),
    )


def _layers(nodes: Sequence[TaskInfo], edges: Sequence[Edge]) -> list[list[str]]:
    parents: dict[str, list[str]] = {}
    for edge in edges:
        parents.setdefault(edge.child, []).append(edge.parent)
    level: dict[str, int] = {}
    layers: list[list[str]] = []
    for node in nodes:
        level[node.id] = 1 + max((level.get(parent, -1) for parent in parents.get(node.id, ())), default=-1)
        while len(layers) <= level[node.id]:
            layers.append([])
        layers[level[node.id]].append(node.id)
    return layers


def _untangle(layers: list[list[str]], edges: Sequence[Edge]) -> None:
    """Order each layer by its neighbours, from the left to the right and back."""
    parents: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    for edge in edges:
        parents.setdefault(edge.child, []).append(edge.parent)
        children.setdefault(edge.parent, []).append(edge.child)
    for sweep in range(_SWEEPS):
        is_forward = sweep % 2 == 0
        place: dict[str, float] = {}
        for layer in layers if is_forward else reversed(layers):
            own = {node_id: position for position, node_id in enumerate(layer)}
            wanted = {
                node_id: _mean(place, (parents if is_forward else children).get(node_id, ()), own[node_id])
                for node_id in layer
            }
            layer.sort(key=lambda node_id: (wanted[node_id], own[node_id]))  # sorted at once
            place.update((node_id, (position + 0.5) / len(layer)) for position, node_id in enumerate(layer))


def _mean(place: Mapping[str, float], neighbours: Sequence[str], default: float) -> float:
    known = [place[each] for each in neighbours if each in place]
    return sum(known) / len(known) if known else default


def _places(layers: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    rows = max((len(layer) for layer in layers), default=0)
    step = _HEIGHT + _BETWEEN_NODES
    return {
        node_id: (
            _MARGIN + column * (_WIDTH + _BETWEEN_LAYERS),
            _MARGIN + (0 if rows > _CENTRED_ROWS_MAX else (rows - len(layer)) * step // 2) + row * step,
        )
        for column, layer in enumerate(layers)
        for row, node_id in enumerate(layer)
    }


def _path(parent: tuple[int, int], child: tuple[int, int]) -> str:
    """Return a curve from the right side of one box to the left side of another."""
    x1, y1 = parent[0] + _WIDTH, parent[1] + _HEIGHT // 2
    x2, y2 = child[0], child[1] + _HEIGHT // 2
    bend = max(24, (x2 - x1) // 2)
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"

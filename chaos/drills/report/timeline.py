"""Draw a drill as a picture, in SVG without a library.

Each node has a lane: whether it was ready (its words are the tooltip), and accepted and refused writes. Faults are bands,
slow calls of the SDK lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from chaos.checkers.history.events import Invoke, Reply
from chaos.drills.load.sdk_client import PROCESS as SDK_CLIENT
from chaos.drills.readiness import Sight
from chaos.drills.rounds import Round

if TYPE_CHECKING:
    from chaos.drills.drill import Result

_LEFT: Final = 90
_PIXELS_PER_SECOND: Final = 12.0
_LANE: Final = 40
_TOP: Final = 46
_STEP_SECONDS: Final = 0.25
_SLOW_SECONDS: Final = 0.5
_FONT: Final = 'font-family="sans-serif" font-size="11"'
_READY: Final = {200: "#2a8", 503: "#e90", 0: "#999"}
_ACCEPTED, _REFUSED, _CALL, _BAND = "#2a8", "#c33", "#27c", "#f6c"


def timeline(result: Result, nodes: Sequence[str]) -> str:
    """Return an SVG: for each node the accepted writes upward and the refused or unknown ones downward."""
    events, rounds = result.events, result.rounds
    seconds = max((event.t for event in events), default=0) / 1e6
    width, height = _LEFT + seconds * _PIXELS_PER_SECOND + 20, _TOP + _LANE * (len(nodes) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" {_FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    parts += [_band(each, number, height) for number, each in enumerate(rounds)]
    replies = {event.op: event for event in events if isinstance(event, Reply)}
    submits = [event for event in events if isinstance(event, Invoke) and event.f == "submit"]
    end = rounds[-1].end if rounds else 0
    for lane, node in enumerate(nodes):
        top = _TOP + lane * _LANE
        parts += _readiness([each for each in result.sights if each.node == node], top, end)
        parts += _lane(node, top, [call for call in submits if call.node == node], replies)
    calls = [call for call in submits if call.process.startswith(SDK_CLIENT)]
    parts += _sdk_lines(calls, replies, _TOP + len(nodes) * _LANE)
    parts += [
        f'<text x="{_x(second):.0f}" y="{height - 4}">{second} s</text>' for second in range(0, int(seconds) + 1, 10)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _readiness(sights: Sequence[Sight], top: int, end: int) -> list[str]:
    """A strip above the lane: ready, not ready, or no answer."""
    strips = []
    for sight, following in zip_longest(sights, sights[1:]):
        begin, stop = _x(sight.t / 1e6), _x((following.t if following is not None else end) / 1e6)
        colour = _READY.get(sight.status, _REFUSED)
        words = escape(f"{sight.node} {sight.status or 'no answer'} {sight.words}")
        strips.append(
            f'<rect x="{begin:.1f}" y="{top - 4}" width="{max(stop - begin, 0.5):.1f}" height="4" fill="{colour}">'
            f"<title>{words}</title></rect>"
        )
    return strips


def _x(seconds: float) -> float:
    return _LEFT + seconds * _PIXELS_PER_SECOND


def _band(each: Round, number: int, height: int) -> str:
    begin, heal = _x(each.begin / 1e6), _x(each.heal / 1e6)
    words = escape(f"{each.fault} {each.target}: no write for {each.write_gap_seconds:.2f} s")
    return (
        f'<rect x="{begin:.1f}" y="30" width="{heal - begin:.1f}" height="{height - 50}" fill="{_BAND}" opacity=".18">'
        f'<title>{words}</title></rect><text x="{begin:.1f}" y="{14 + 12 * (number % 2)}">{escape(each.fault)}</text>'
    )


def _lane(node: str, top: int, calls: Iterable[Invoke], replies: dict[int, Reply]) -> list[str]:
    accepted: Counter[int] = Counter()
    refused: Counter[int] = Counter()
    for call in calls:
        reply = replies.get(call.op)
        at = (reply or call).t / 1e6
        (accepted if reply is not None and reply.type == "ok" else refused)[int(at / _STEP_SECONDS)] += 1
    middle = top + _LANE // 2
    return [
        f'<text x="4" y="{middle + 4}" font-weight="bold">{escape(node)}</text>',
        *_bars(accepted, middle, -1, _ACCEPTED),
        *_bars(refused, middle, 1, _REFUSED),
    ]


def _bars(counts: Counter[int], middle: int, direction: int, colour: str) -> list[str]:
    unit = (_LANE // 2 - 2) / max(counts.values(), default=1)
    bars = []
    for step, count in sorted(counts.items()):
        size = unit * count
        top = middle - size if direction < 0 else middle
        x, width = _x(step * _STEP_SECONDS), _STEP_SECONDS * _PIXELS_PER_SECOND - 0.5
        bars.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{size:.1f}" fill="{colour}"/>')
    return bars


def _sdk_lines(calls: Sequence[Invoke], replies: dict[int, Reply], top: int) -> list[str]:
    """A line for each slow call, from its start to its end."""
    lines = [f'<text x="4" y="{top + 14}" font-weight="bold">SDK &gt; {_SLOW_SECONDS} s</text>']
    slow = 0
    for call in calls:
        reply = replies.get(call.op)
        took = ((reply.t if reply is not None else call.t) - call.t) / 1e6
        if took > _SLOW_SECONDS:
            y = top + 4 + slow % (2 * _LANE - 8)
            begin = _x(call.t / 1e6)
            lines.append(
                f'<line x1="{begin:.1f}" x2="{begin + took * _PIXELS_PER_SECOND:.1f}" y1="{y}" y2="{y}"'
                f' stroke="{_CALL}"/>'
            )
            slow += 1
    return lines

"""A hierarchical timing wheel (Varghese & Lauck 1987), accurate to the millisecond, with sparse slots.

Theory of operation. A timer lies in a slot of one level; slots of level 0 are one millisecond wide, those of each
further level 64 times wider. A new timer goes to the level that fits its distance, so that far timers share few slots,
and adding or cancelling one touches a dict entry. If the earliest slot of a wide level may hold the next timer, its
timers move down one level; each timer moves at most once for each level, and most (renewed leases, ended waits) are
cancelled while they still lie in a wide slot.

The slots are sparse: each level is a SortedDict from slot number to slot, so time without timers costs nothing, the
wheel does not turn tick by tick, and the next due time is exact, which lets its owner sleep until then.

Left out: a bound on the number of timers; owners have their own.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from sortedcontainers import SortedDict

T = TypeVar("T")

_SHIFTS: Final = (0, 6, 12, 18)
"""Slots are 1 ms, 64 ms, 4.1 s and 4.4 min wide."""
_BITS: Final = 6
_TOP: Final = len(_SHIFTS) - 1


class Timer(Generic[T]):
    """An item in a wheel; keep it to cancel it. `sequence` and `slot` are the wheel's own."""

    __slots__ = ("due_ms", "item", "sequence", "slot")

    def __init__(self, due_ms: int, item: T, sequence: int) -> None:
        self.due_ms: Final = due_ms
        self.item: Final = item
        self.sequence: Final = sequence
        self.slot: dict[int, Timer[T]] | None = None


class Wheel(Generic[T]):
    """Hold timers by due time, in milliseconds of the owner's clock. `len` counts those that are pending."""

    def __init__(self) -> None:
        self._levels: Final[tuple[SortedDict, ...]] = tuple(SortedDict() for _ in _SHIFTS)
        self._now_ms = 0
        self._sequence = 0
        self._count = 0
        self._next_ms: int | None = None
        """No timer is due before it; None if there is no timer."""
        self._exact = True
        """Whether a timer is due then for sure; False after the earliest was cancelled, until the next one is found."""

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, item: T) -> Timer[T]:
        """Keep `item` until `due_ms`; a time in the past is due at the next `advance`."""
        self._sequence += 1
        timer = Timer(due_ms, item, self._sequence)
        distance_ms = due_ms - self._now_ms
        level = min(_TOP, (distance_ms.bit_length() - 1) // _BITS) if distance_ms > 0 else 0
        self._place(timer, level)
        self._count += 1
        if self._next_ms is None or due_ms < self._next_ms:
            self._next_ms = due_ms
        return timer

    def cancel(self, timer: Timer[T]) -> bool:
        """Remove the timer; return False, with nothing changed, if it was due or cancelled before."""
        slot = timer.slot
        if slot is None:
            return False
        # An emptied slot stays until it is reached: there are only some dozens in a level.
        del slot[timer.sequence]
        timer.slot = None
        self._count -= 1
        if timer.due_ms == self._next_ms:
            self._exact = False
        return True

    def next_due(self) -> int | None:
        """Return the exact due time of the earliest timer; None if there is none."""
        if not self._exact:
            self._next_ms = self._settle()
            self._exact = True
        return self._next_ms

    def next_call(self) -> int | None:
        """Return when to call `advance`: the due time of the earliest timer, or of one before it that was cancelled.

        Costs nothing, so an owner that cancels most of its timers accepts an occasional needless call.
        """
        return self._next_ms

    def advance(self, now_ms: int) -> list[T]:
        """Remove and return all items due up to `now_ms`: by due time, then in the order they were added."""
        self._now_ms = max(self._now_ms, now_ms)
        if self._next_ms is None or self._next_ms > now_ms:
            return []
        due: list[T] = []
        while (next_ms := self._settle()) is not None and next_ms <= now_ms:
            slot = self._levels[0].pop(next_ms)
            # Timers that came down from a wider slot may be older than those that were here.
            for _, timer in sorted(slot.items()) if len(slot) > 1 else slot.items():
                timer.slot = None
                due.append(timer.item)
        self._count -= len(due)
        self._next_ms = next_ms
        return due

    def _place(self, timer: Timer[T], level: int) -> None:
        slots = self._levels[level]
        number = timer.due_ms >> _SHIFTS[level]
        slot = slots.get(number)
        if slot is None:
            slot = slots[number] = {}
        slot[timer.sequence] = timer
        timer.slot = slot

    def _settle(self) -> int | None:
        """Move timers down until the earliest of all lies in level 0; return its due time, None if there is none."""
        while True:
            level, number = self._earliest_slot()
            if level < 0:
                return None
            slots = self._levels[level]
            if not slots[number]:
                del slots[number]
            elif level == 0:
                return number
            else:
                for timer in slots.pop(number).values():
                    self._place(timer, level - 1)

    def _earliest_slot(self) -> tuple[int, int]:
        """Return (level, number) of the slot that begins first, the widest of them; level -1 if there is none."""
        found, first_ms, first_number = -1, 0, 0
        for level, slots in enumerate(self._levels):
            if slots:
                number: int = slots.peekitem(0)[0]
                begins_ms = number << _SHIFTS[level]
                if found < 0 or begins_ms <= first_ms:
                    found, first_ms, first_number = level, begins_ms, number
        return found, first_number

"""Checkers: does a history of a run keep what RELIABILITY promises?

Theory of operation. A harness (the simulator, a drill with real processes) writes down what clients, workers and nodes
saw: `history`. `check_all` holds it against one property after the other, each a function `check(history) ->
list[Violation]` whose docstring says what is promised and where. A property that saw nothing it could judge is listed
as not exercised: silence is no proof.

The checkers share no code with the system. What a job may do is written again in `model`, from the specification; so a
mistake would have to be made twice to stay hidden. They are tested by mutated histories: every property must be the one
to find the mutation that breaks it.
"""

from chaos.checkers.check import FEATURES, PROPERTIES, check_all
from chaos.checkers.history.events import BadHistory, append_event, read_history, write_history
from chaos.checkers.history.views import History
from chaos.checkers.report import Property, Report, Violation

__all__ = [
    "FEATURES",
    "PROPERTIES",
    "BadHistory",
    "History",
    "Property",
    "Report",
    "Violation",
    "append_event",
    "check_all",
    "read_history",
    "write_history",
]

"""Examine a machine before, or while, it runs a node: `raftsched doctor`. Nothing is changed.

`examination` runs all checks. `files`, `network`, `disk` and `machine` have them, each for its own part.
"""

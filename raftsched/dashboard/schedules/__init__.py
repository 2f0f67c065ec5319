"""Explain schedules: their timing in words, the clock changes of their zone, and a month of their decisions.

Nothing here reads the cluster: it is given what the API answered.
"""

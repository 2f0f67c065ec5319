"""Failures of real clusters in the large: `python -m tests.drills.<name>`; the acceptance tests run the small forms.

Each drill kills, stops and starts node processes under load, then reads through the API what was recorded, and says
what is missing or stands there twice. It ends with exit code 0 only if nothing does.
"""

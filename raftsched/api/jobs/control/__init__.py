"""Change one job: cancel, pause, resume, retry, replay, amend."""

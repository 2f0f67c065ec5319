"""Faults on purpose: the simulator, the drills with real processes, and the checkers that judge both."""

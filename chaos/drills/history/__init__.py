"""Histories of drills: recorded by the harness and its processes, completed from the nodes' disks."""

"""The base of every process of a world: time, an event loop, a disk."""

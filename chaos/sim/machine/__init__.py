"""What every process of a world runs on: time, an event loop, a disk."""

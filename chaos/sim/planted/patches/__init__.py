"""The bugs, each one patch to production code."""

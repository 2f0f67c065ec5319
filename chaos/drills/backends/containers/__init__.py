"""Hosts that are containers of the image: an engine to run them, a base image, and the backend."""

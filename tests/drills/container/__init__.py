"""The image as it is used: built from the Dockerfile, and run as three nodes and a worker in containers."""

"""Encrypt what a node writes to its disk: read its keys, and encrypt and decrypt bytes under them."""

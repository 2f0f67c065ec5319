"""Ordered tables of bytes, in LMDB and in memory."""

"""Decode requests: one strict scan, typed decoding, errors that name the field."""

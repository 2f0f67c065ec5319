"""JSON as it is accepted: one strict scan, typed decoding, errors that name the field."""

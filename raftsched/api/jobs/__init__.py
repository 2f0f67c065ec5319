"""Jobs: submit, read, list, control, alone and in bulk."""

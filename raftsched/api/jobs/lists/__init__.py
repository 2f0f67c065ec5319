"""Select jobs, and list them in a stable order, page by page."""

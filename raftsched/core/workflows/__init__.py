"""Handle operations on workflows, and the effects of one job on others."""

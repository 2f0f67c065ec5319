"""Define the records of the replicated state, and the rules that need nothing else."""

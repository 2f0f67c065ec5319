"""Work that the leader does in small steps beside everything else."""

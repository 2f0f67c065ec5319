"""Change many jobs by bounded requests, and the jobs of the dead-letter queue."""

"""Operations on jobs, one module for each step of a job's life."""

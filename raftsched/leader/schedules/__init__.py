"""Fire times of schedules, and what to decide for them."""

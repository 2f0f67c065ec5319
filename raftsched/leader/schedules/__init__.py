"""Fire times of schedules, and the decisions about them."""

"""Many seeds on all cores, and the score of the planted bugs."""

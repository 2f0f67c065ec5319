"""Reports of drills, for people."""

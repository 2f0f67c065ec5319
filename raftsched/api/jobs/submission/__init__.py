"""Submit jobs, one or many, and serve the routes of the first version."""

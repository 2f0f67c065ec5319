"""Serve the routes of tenants, and enforce their rates of submission."""

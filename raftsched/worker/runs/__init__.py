"""Runs that the worker holds leases for, and reports about them."""

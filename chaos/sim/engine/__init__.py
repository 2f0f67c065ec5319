"""Clusters of bare consensus engines, for directed tests."""

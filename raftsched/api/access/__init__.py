"""Decide who may do what: who calls, which routes a role may use, and which tenant's records it sees."""

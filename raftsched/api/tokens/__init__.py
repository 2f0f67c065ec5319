"""Make, list, rotate and revoke the tokens of the API."""

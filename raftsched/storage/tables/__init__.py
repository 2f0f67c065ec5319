"""Keys, records and indexes of the state, table by table."""

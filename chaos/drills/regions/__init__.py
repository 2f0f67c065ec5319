"""Five nodes in five regions of the world: their links are as long as between continents."""

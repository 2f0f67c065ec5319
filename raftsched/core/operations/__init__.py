"""Operations: the closed set of changes that the log holds."""

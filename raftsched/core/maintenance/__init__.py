"""Operations that the cluster needs for itself: deadlines, retention, queue settings."""

"""Handle operations on schedules: save, fire, adopt new time zone rules."""

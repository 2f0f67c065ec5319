"""One seed, from birth to verdict."""

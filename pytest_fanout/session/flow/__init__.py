"""A live run as it goes: what it will cost, how far it is, what it may spend, how fast it may ask."""

"""A graph as it was on a day, asked for the links that were added to it later."""

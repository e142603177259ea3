"""A small shop whose work happens in the background."""

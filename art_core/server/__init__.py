"""``art serve``: gateway, engine and trainer behind HTTP, for many projects at once."""

"""How models write tool calls, and what of it is known."""

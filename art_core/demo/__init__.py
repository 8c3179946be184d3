"""The demo: an agent that learns to search the documentation installed on this machine."""

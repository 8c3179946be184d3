"""Backends: model, engine, trainer and run directory put together."""

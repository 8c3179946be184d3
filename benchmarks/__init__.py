"""Scripts that measure what the documentation claims: ``python -m benchmarks.<name> [--json]``."""

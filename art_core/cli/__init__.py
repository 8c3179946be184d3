"""The ``art`` command. Nothing here is imported by the rest of the package."""

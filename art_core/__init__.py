"""ART Core."""

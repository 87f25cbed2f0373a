"""Array ops."""

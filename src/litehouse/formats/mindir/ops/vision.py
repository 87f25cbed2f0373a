"""Vision ops."""

"""Logic ops."""

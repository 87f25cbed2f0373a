"""Index ops."""

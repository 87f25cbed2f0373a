"""Create ops."""

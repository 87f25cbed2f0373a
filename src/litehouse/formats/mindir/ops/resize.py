"""Resize ops."""

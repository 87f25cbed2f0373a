"""Recurrent ops."""

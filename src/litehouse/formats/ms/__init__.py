"""MindSpore Lite's `.ms` files."""

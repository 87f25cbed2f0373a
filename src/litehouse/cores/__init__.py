"""The cores and the memory that this process may use, and how models share them."""

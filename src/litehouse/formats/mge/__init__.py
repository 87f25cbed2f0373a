"""MegEngine files (`.mge`), and MegEngine Lite's packed models."""

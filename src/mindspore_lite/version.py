"""The version of the MindSpore Lite API that this package was checked against, by running both side by side."""

__version__ = "2.0.0"

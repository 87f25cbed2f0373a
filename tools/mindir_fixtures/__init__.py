"""Case tables and the harness behind ``tools/make_mindir_fixtures.py``."""

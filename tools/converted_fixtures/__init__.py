"""The cases that `make_converted_fixtures.py` makes files of."""

"""Tables of the cases that `tools/make_mindir20_fixtures.py` makes with MindSpore 2.0."""

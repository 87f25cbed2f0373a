"""The networks and single operators that `tools/check_networks.py` makes with MindSpore 2.10."""

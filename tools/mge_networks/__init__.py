"""The networks that `tools/check_mge_networks.py` makes with MegEngine 1.13."""

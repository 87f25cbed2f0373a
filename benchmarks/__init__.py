"""Benchmarks: one script per claim. Each runs all contenders in turn and prints ratios with their spread."""

"""Engines: what runs a model. One file each; imported when first used."""

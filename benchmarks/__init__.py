"""Measurements, each a command of its own; `make bench` runs them."""

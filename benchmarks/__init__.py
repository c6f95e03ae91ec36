"""Measurements: `make bench` runs them, `python -m benchmarks MEASURE` one of them, docs/benchmarks.md tells what they are."""

"""Renewals that are all due at once, and workers killed with -9 while their customers are told."""

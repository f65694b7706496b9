"""Rows of papers' tables: which raysim has, what they need, what was measured, and running one beside the paper."""

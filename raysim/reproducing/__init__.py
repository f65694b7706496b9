"""Rows of papers' tables: which raysim has, what they need, what was measured of them, and all of this as text."""

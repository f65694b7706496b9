"""The version of raysim; pyproject.toml and CITATION.cff have the same."""

VERSION = "0.1.0"

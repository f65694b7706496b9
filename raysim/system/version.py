"""The version of raysim; pyproject.toml and CITATION.cff have the same."""

VERSION = "1.0.0rc1"

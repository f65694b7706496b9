"""Encoders and causal language models of Hugging Face's transformers, from folders with a config and weights."""

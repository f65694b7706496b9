"""Parts shared by several methods: replay, projection, gradient tables, per-sample gradients, the Fisher information.

A part is used by at least two methods, or is a separate mechanism with its own tests.
"""

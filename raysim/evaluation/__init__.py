"""How good a model is: right answers counted, continual-learning metrics, accuracy per client.

`raysim evaluate` is here too.
"""

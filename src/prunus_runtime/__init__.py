"""Runs deployed networks. Needs numpy and nothing else: neither torch nor the model's code."""

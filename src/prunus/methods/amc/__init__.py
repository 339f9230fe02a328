"""AMC: the method, the agent that chooses, and the environment that it acts in."""

from prunus.methods.amc.method import AMC

__all__ = ["AMC"]

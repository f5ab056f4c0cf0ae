"""Agents that learn one score for all of them: the same function of a row at every agent."""

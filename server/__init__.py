"""Decides: who trains, what is folded, when a round ends."""

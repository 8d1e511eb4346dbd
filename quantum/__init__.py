"""Quantum models as torch modules, seen from outside. Arrives with the quantum clients."""

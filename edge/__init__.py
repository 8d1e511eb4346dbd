"""Carries: grids, slices and the nodes they reach. It does not know what it carries."""

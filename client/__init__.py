"""Trains: one instruction in, one update out."""

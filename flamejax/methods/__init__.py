"""Federated algorithms: one file each."""

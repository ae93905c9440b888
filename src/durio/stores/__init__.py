"""Durable truth: one package per kind of store."""

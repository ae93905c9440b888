"""Stores of jobs: one package per kind of database."""

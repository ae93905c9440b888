"""The hall: what rooms ask of a store, a clock, an executor and a handler."""

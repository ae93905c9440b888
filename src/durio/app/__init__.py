"""The public API: App and Task; the only package that imports all others."""

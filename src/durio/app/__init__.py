"""The front door: App, Task, and the one place that knows all rooms."""

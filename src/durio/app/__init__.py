"""The front door: App, Task, and the only place that knows all rooms."""

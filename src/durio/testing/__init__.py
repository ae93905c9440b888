"""Test tasks without a worker: `with testing(app) as box:`, or the fixture `durio_box`."""

from durio.testing.box import Box as Box
from durio.testing.box import testing as testing
from durio.testing.box_clock import BoxClock as BoxClock
from durio.testing.box_jobs import BoxJob as BoxJob

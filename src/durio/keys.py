"""Idempotency policies for `options(key=..., unique=...)`."""

from durio.model.keys import KeyPolicy as KeyPolicy
from durio.model.keys import debounce as debounce
from durio.model.keys import replace as replace
from durio.model.keys import while_active as while_active
from durio.model.keys import while_waiting as while_waiting
from durio.model.keys import window as window

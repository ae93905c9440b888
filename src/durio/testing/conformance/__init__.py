"""One suite that every store must pass, a chapter per capability.

Give a `Subject`, and `check(promise, subject)` each promise of `SUITE`: tests/conformance
shows how with pytest, in a page. For readable failures let pytest rewrite the asserts:
`pytest.register_assert_rewrite("durio.testing.conformance")` before the first import.
"""

from durio.testing.conformance.clock import ManualClock as ManualClock
from durio.testing.conformance.promises import Promise as Promise
from durio.testing.conformance.promises import check as check
from durio.testing.conformance.subject import Fault as Fault
from durio.testing.conformance.subject import Subject as Subject
from durio.testing.conformance.suite import SUITE as SUITE

"""One suite that every store must pass, a chapter per capability.

Give a `Subject`, and `check(promise, subject)` each promise of `SUITE`: tests/conformance
shows how with pytest, in a page. For readable failures let pytest rewrite the asserts:
`pytest.register_assert_rewrite("tests.conformance")` before the first import.
"""

from tests.conformance.manual_clock import ManualClock as ManualClock
from tests.conformance.promises import Promise as Promise
from tests.conformance.promises import check as check
from tests.conformance.subject import StatementFault as StatementFault
from tests.conformance.subject import Subject as Subject
from tests.conformance.suite import SUITE as SUITE

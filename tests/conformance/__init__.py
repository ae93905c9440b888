"""One suite that every store must pass, with a chapter per capability.

Give a `Subject`, and call `check(promise, subject)` for each promise of `SUITE`;
tests/conformance shows how to do it with pytest. For readable failures let pytest rewrite
the asserts: `pytest.register_assert_rewrite("tests.conformance")` before the first import.
"""

from tests.conformance.manual_clock import ManualClock as ManualClock
from tests.conformance.promises import Promise as Promise
from tests.conformance.promises import check as check
from tests.conformance.subject import StatementFault as StatementFault
from tests.conformance.subject import Subject as Subject
from tests.conformance.suite import SUITE as SUITE

"""Bugs about breakers: calls that must not be made, and jobs that nobody lets go."""

from tests.mutants.planting import Tests, one_patch

RULES = Tests("tests/unit/model/test_breaker.py")
APP = Tests("tests/unit/app/test_breakers.py")
MODEL, WORKER = "model/breaker.py", "worker/breakers.py"

PLANTED = (
    one_patch(
        "breaker_opens_without_its_condition",
        "A breaker opens at the first failure, whatever its numbers say.",
        MODEL,
        "    if not too_many and not too_often:\n",
        "    if not failures:\n",
        RULES,
    ),
    one_patch(
        "breaker_counts_for_ever",
        "Calls are never forgotten: a breaker opens for the failures of a year.",
        MODEL,
        "if abs(part - row[0]) < PARTS]",
        "if row[0] <= part]",
        RULES,
    ),
    one_patch(
        "third_probe",
        "A half-open breaker lets a third call through.",
        MODEL,
        "    if len(record.probes) >= record.rule.probes:\n",
        "    if len(record.probes) > record.rule.probes:\n",
        RULES,
    ),
    one_patch(
        "probe_is_never_given_back",
        "A probe without a result stays: no other may follow, and the breaker never closes.",
        MODEL,
        "        record, probes={key: at for key, at in record.probes.items() if key != job}\n",
        "        record, probes=record.probes\n",
        RULES,
    ),
    one_patch(
        "lost_probe_stays",
        "The probe of a worker that died is never removed.",
        MODEL,
        "        if job not in running:\n",
        "        if False:\n",
        APP,
    ),
    one_patch(
        "open_gate_opens_by_itself",
        "The gate of an open breaker lets all jobs through when the time is over.",
        MODEL,
        "    return GateChange(gate, cap=0)\n",
        "    return GateChange(gate, cap=None, until_seconds=record.rule.open_seconds)\n",
        RULES,
    ),
    one_patch(
        "held_job_uses_an_attempt",
        "A job that a breaker holds back has used an attempt.",
        "worker/breaker_call.py",
        "        OutcomeKind.RELEASE,\n",
        "        OutcomeKind.RETRY,\n",
        APP,
    ),
    one_patch(
        "held_job_keeps_its_place_in_line",
        "A job that a breaker holds back is claimed again at once, and again.",
        "worker/breaker_call.py",
        "        again_from_gates=True,\n",
        "        again_from_gates=False,\n",
        APP,
    ),
    one_patch(
        "state_of_a_breaker_is_never_read_again",
        "A worker that once saw a breaker closed goes on calling.",
        WORKER,
        "        return self._clock.monotonic() - known.read_at\n",
        "        return 0.0\n",
        APP,
    ),
    one_patch(
        "late_result_counts",
        "A call that began before the breaker opened counts after it has closed.",
        WORKER,
        "        if calls.period > used.period:\n",
        "        if False:\n",
        APP,
    ),
    one_patch(
        "breaker_is_written_without_its_version",
        "Workers overwrite each other's counts, probes and changes.",
        "ports/breaker_change.py",
        "    put = breaker_put(namespace, name, after, found.version, due_at)\n",
        "    put = breaker_put(namespace, name, after, found.version, due_at)"
        "._replace(if_version=None)\n",
        APP,
    ),
    one_patch(
        "gate_is_not_changed",
        "A breaker opens, and its gate lets the jobs through all the same.",
        "ports/breaker_change.py",
        "    gates = () if same_gate else (gate_of(namespace, name, after),)\n",
        "    gates = ()\n",
        APP,
    ),
)

/** The bulk acts that go on, with their progress, on every screen. */
import { useEffect } from "preact/hooks";

import { findRuns, runs, stopBulk } from "../data/bulk";
import type { BulkRun } from "../data/schema";
import { known, rich, t } from "../text";
import { Act } from "./actions";

export function BulkRuns() {
  useEffect(() => {
    void findRuns();
  }, []);
  if (runs.value.length === 0) return null;
  return (
    <ul class="runs" aria-label={t("bulk.runs")}>
      {runs.value.map((run) => (
        <Run key={run.id} run={run} />
      ))}
    </ul>
  );
}

function Run({ run }: { run: BulkRun }) {
  const done = run.done + run.skipped + run.failed;
  const all = Math.max(run.expected, done, 1);
  return (
    <li>
      <span class="grow">
        {rich("bulk.progress", { verb: known(`bulk.doing.${run.verb}`, run.verb), done, all })}
        <code class="cut q3">{run.q}</code>
      </span>
      <progress value={done} max={all} aria-label={t("bulk.runs")} />
      <Act verb="stop_bulk" small icon="stop" disabled={run.state === "stopping"} onClick={() => void stopBulk(run.id)}>
        {t(run.state === "stopping" ? "bulk.stopping" : "bulk.stop")}
      </Act>
    </li>
  );
}

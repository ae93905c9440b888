/** What the rows of queues show: who waits, what holds them. */
import type { Queue, StateCounts } from "../../data/schema";
import { type Counted, formatCount } from "../../format";
import { visible } from "../../names";
import { t } from "../../text";

export function waiting(counts: StateCounts): Counted {
  const found = [counts.ready, counts.blocked, counts.scheduled];
  return { count: found.reduce((all, each) => all + (each?.count ?? 0), 0), capped: found.some((each) => each?.capped) };
}

/** Return what keeps a queue from running at full speed. */
export function heldBy(queue: Queue): { text: string; state: string }[] {
  const out: { text: string; state: string }[] = [];
  if (queue.state === "paused") out.push({ text: t("queue.paused"), state: "off" });
  if (queue.state === "closed") out.push({ text: t("queue.closed"), state: "dead" });
  if (queue.workers === 0 && waiting(queue.counts).count > 0) out.push({ text: t("queue.no_worker"), state: "dead" });
  const isBlocked = (queue.counts.blocked?.count ?? 0) > 0;
  for (const limit of isBlocked ? queue.limits.slice(0, 2) : []) out.push({ text: visible(limit), state: "blocked" });
  if (isBlocked && queue.limits.length === 0) out.push({ text: t("queue.blocked", { count: formatCount(queue.counts.blocked) }), state: "blocked" });
  return out;
}

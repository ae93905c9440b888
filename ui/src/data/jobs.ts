/** What can be done with jobs, one by one. */
import { formatNumber } from "../format";
import { toast, toastError } from "../parts/toasts";
import { has, t } from "../text";
import { ApiError, part, send } from "./client";
import type { Job, State } from "./schema";
import { asApiError } from "./use";

export const VERBS = ["retry", "run_now", "cancel", "discard"] as const;
export type JobVerb = (typeof VERBS)[number];

const ALLOWED: Record<JobVerb, readonly State[]> = {
  retry: ["dead", "cancelled"],
  run_now: ["scheduled"],
  cancel: ["scheduled", "blocked", "ready", "running"],
  discard: ["dead"],
};
const AT_ONCE = 4; // requests side by side

/** Tell whether a verb makes sense in a state; the server decides. */
export function applies(verb: JobVerb, state: State): boolean {
  return ALLOWED[verb].includes(state);
}

/** Do one thing with one job, and say so; returns the answer, or null if it was refused. */
export async function actOnJob<T = unknown>(verb: string, id: string, name: string, body: unknown = {}): Promise<T | null> {
  try {
    const answer = await send<T>("POST", `jobs/${part(id)}/${verb}`, body);
    const key = `did.${verb}`;
    toast(has(key) ? t(key, { task: name.slice(name.lastIndexOf(".") + 1) }) : verb);
    return answer;
  } catch (error) {
    toastError(asApiError(error));
    return null;
  }
}

/** Do one thing with a few jobs, and say how it went. */
export async function actOnJobs(verb: JobVerb, jobs: readonly Job[], onStep?: (done: number) => void): Promise<void> {
  const queue = [...jobs];
  let done = 0;
  let refused: ApiError | null = null;
  let failed = 0;
  const work = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      try {
        await send("POST", `jobs/${part(job.id)}/${verb}`);
        done += 1;
      } catch (error) {
        refused = asApiError(error);
        failed += 1;
      }
      onStep?.(done + failed);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  report(verb, done, failed, refused);
}

function report(verb: JobVerb, done: number, failed: number, refused: ApiError | null): void {
  const text = t(`did.many.${verb}`, { n: done });
  if (!refused) return toast(text);
  const problem: ApiError = refused;
  toast(done === 0 ? problem.message : t("did.some", { text, n: failed, total: formatNumber(done + failed) }), {
    state: "dead",
    more: done === 0 ? problem.cure : problem.message,
  });
}

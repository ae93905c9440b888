/** Acts on all jobs that match a query: preview, run, progress, stop. */
import { signal } from "@preact/signals";

import { toast, toastError } from "../parts/toasts";
import { known, t } from "../text";
import { get, type Page, part, send } from "./client";
import type { BulkRun, Preview } from "./schema";
import { asApiError } from "./use";

/** Runs that go on, and those that ended while the page was open. */
export const runs = signal<BulkRun[]>([]);

const POLL_MS = 1000;
let timer: ReturnType<typeof setTimeout> | undefined;

export interface BulkWish {
  verb: string;
  q: string;
  reason?: string;
  to?: string;
}

export async function preview(wish: BulkWish): Promise<Preview | null> {
  try {
    return await send<Preview>("POST", "bulk/preview", wish);
  } catch (error) {
    toastError(asApiError(error));
    return null;
  }
}

/** Start what was previewed; `count` is the typed number, if one was asked for. */
export async function startBulk(found: Preview, count: number | null): Promise<boolean> {
  try {
    const { run } = await send<{ run: string }>("POST", "bulk", { preview: found.preview, ...(count === null ? {} : { count }) });
    toast(t("bulk.started", { verb: known(`bulk.doing.${found.verb}`, found.verb), n: found.count }));
    await track(run);
    return true;
  } catch (error) {
    toastError(asApiError(error));
    return false;
  }
}

export async function stopBulk(id: string): Promise<void> {
  try {
    await send("POST", `bulk/${part(id)}/stop`);
    await track(id);
  } catch (error) {
    toastError(asApiError(error));
  }
}

/** Find the runs that go on: they survive the page. */
export async function findRuns(): Promise<void> {
  try {
    const found = await get<Page<BulkRun>>("bulk");
    runs.value = found.items.filter(isActive);
    follow();
  } catch {
    // Not allowed, or the server is away: nothing to follow.
  }
}

export function isActive(run: BulkRun): boolean {
  return run.state === "running" || run.state === "stopping";
}

async function track(id: string): Promise<void> {
  const run = await get<BulkRun>(`bulk/${part(id)}`);
  const before = runs.value.find((each) => each.id === id);
  runs.value = [...runs.value.filter((each) => each.id !== id), run].filter(isActive);
  if (!isActive(run) && (before || run.ended_at)) say(run);
  follow();
}

function follow(): void {
  clearTimeout(timer);
  if (runs.value.length === 0) return;
  timer = setTimeout(() => {
    void Promise.all(runs.value.map((each) => track(each.id))).catch((error: unknown) => {
      asApiError(error);
      follow();
    });
  }, POLL_MS);
}

function say(run: BulkRun): void {
  const done = t("bulk.ended", { did: known(`bulk.did.${run.verb}`, run.verb), n: run.done });
  const rest = [run.skipped > 0 && t("bulk.skipped", { n: run.skipped }), run.failed > 0 && t("bulk.failed", { n: run.failed })];
  const state = run.state === "done" && run.failed === 0 ? "done" : "dead";
  const head = run.state === "stopped" ? `${t("bulk.stopped")} ${done}` : done;
  toast(head, { state, more: rest.filter(Boolean).join(", ") });
}

/** Who looks at the page, and what they may do. */
import { signal } from "@preact/signals";

import { t } from "../text";
import { get } from "./client";
import type { Me, Role } from "./schema";
import { asApiError } from "./use";

export const me = signal<Me | null>(null);

const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };

/** The role that each action needs; `me.may` of the server wins over it. */
const NEEDS = {
  enqueue: "operator",
  retry: "operator",
  cancel: "operator",
  run_now: "operator",
  duplicate: "operator",
  retry_edited: "admin",
  discard: "admin",
  move_queue: "admin",
  purge_queue: "admin",
  pause_queue: "operator",
  close_queue: "operator",
  bound_queue: "admin",
  mute_error: "operator",
  run_schedule: "operator",
  pause_schedule: "operator",
  change_schedule: "admin",
  backfill_schedule: "admin",
  cancel_plan: "operator",
  retry_plan: "operator",
  drain_worker: "operator",
  stack_worker: "operator",
  change_breaker: "operator",
  change_limit: "admin",
  change_users: "admin",
  change_tokens: "admin",
  bulk: "operator",
  stop_bulk: "operator",
} as const satisfies Record<string, Role>;

export type Verb = keyof typeof NEEDS;

/** Return why the reader may not do this, or null. */
export function refusal(verb: Verb): string | null {
  const now = me.value;
  if (!now) return t("refused.loading");
  if (now.read_only) return t("refused.read_only", { reason: now.read_only });
  const role = NEEDS[verb];
  const allowed = now.may[verb] ?? RANK[now.role] >= RANK[role];
  return allowed ? null : t("refused.role", { role: t(`role.${role}`), mine: t(`role.${now.role}`) });
}

export function isAtLeast(role: Role): boolean {
  return me.value !== null && RANK[me.value.role] >= RANK[role];
}

/** Read who is here; null when that failed, with the error. */
export async function readMe(): Promise<ReturnType<typeof asApiError> | null> {
  try {
    me.value = await get<Me>("me");
    return null;
  } catch (error) {
    return asApiError(error);
  }
}

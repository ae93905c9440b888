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
  edit: "admin",
  discard: "admin",
  move: "admin",
  purge: "admin",
  pause: "operator",
  resume: "operator",
  close: "operator",
  open: "operator",
  bound: "admin",
  mute: "operator",
  schedule_run: "operator",
  schedule_pause: "operator",
  schedule_edit: "admin",
  plan_cancel: "operator",
  plan_retry: "operator",
  drain: "operator",
  stack: "operator",
  breaker: "operator",
  limit: "admin",
  settings: "operator",
  users: "admin",
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

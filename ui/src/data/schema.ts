/** What the API answers, written by hand until the server's document has it.
 * Texts of jobs travel as JSON text: a browser would change big integers. */

export const STATES = ["scheduled", "blocked", "ready", "running", "done", "dead", "cancelled"] as const;
export type State = (typeof STATES)[number];
export type Role = "viewer" | "operator" | "admin";
export type Time = string;

export interface Count {
  count: number;
  capped: boolean;
}
export type StateCounts = Partial<Record<State, Count>>;

export interface Me {
  user: string;
  role: Role;
  via: string;
  payloads: boolean;
  read_only: string | null;
  may: Record<string, boolean>;
  queues: string[] | null;
  app: string;
  version: string;
  title: string | null;
  badge: { text: string; color: string } | null;
  links: Record<string, string>;
  store: { kind: string; url_redacted: string };
}

export interface Attention {
  level: "ok" | "warn" | "bad";
  text: string;
  evidence: string;
  action: { label: string; href: string } | null;
}

export interface Overview {
  headline: { level: "ok" | "warn" | "bad"; text: string };
  attention: Attention[];
  states: StateCounts;
  as_of: Time;
  queues: Queue[];
  workers: { live: number; slots: number; busy: number };
  error_groups: ErrorGroup[];
  last_changes: AuditLine[];
  schedules_next: { name: string; at: Time; plain?: string }[];
}

export interface Job {
  id: string;
  task: string;
  queue: string;
  state: State;
  priority: number;
  attempt: number;
  max_attempts: number | null;
  created_at: Time;
  run_at: Time | null;
  started_at: Time | null;
  finished_at: Time | null;
  worker: string | null;
  key: string | null;
  reason: string | null;
  last_error: { type: string; text: string } | null;
  progress: Progress | null;
  now: string;
  args_json?: string | null;
  kwargs_json?: string | null;
}

export interface Progress {
  done: number;
  total: number | null;
  message: string | null;
  state: string | null;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
  code: string | null;
  own: boolean;
}
export interface ErrorDetail {
  type: string;
  text: string;
  frames: Frame[];
  cause: string | null;
}
export interface LogLine {
  at: Time | null;
  level: string;
  text: string;
}
export interface Attempt {
  number: number;
  worker: string | null;
  started_at: Time | null;
  ended_at: Time | null;
  outcome: string;
  error: ErrorDetail | null;
  traceback: string | null;
  logs: LogLine[];
}
export interface Reason {
  code: string;
  text: string;
  unblock: string;
  command: string | null;
  is_blocking: boolean;
}
export interface Gate {
  name: string;
  text: string;
  open: boolean | null;
  href?: string | null;
}
export interface JobDetail extends Job {
  args_json: string | null;
  kwargs_json?: string | null;
  meta_json: string | null;
  result_json: string | null;
  masked: boolean;
  unique: string | null;
  expires_at: Time | null;
  version: string | null;
  plan: { id: string; node: string | null; name: string | null } | null;
  schedule: { name: string; due_at: Time } | null;
  parents: string[];
  children: string[];
  gates?: Gate[];
  transitions: { at: Time; state: string; text: string }[];
  attempts: Attempt[];
  same_error: { fingerprint: string; count: number } | null;
  actions: Record<string, string | null>;
}
export interface Explanation {
  sentence?: string;
  evidence?: string[];
  gates?: Gate[];
  reasons?: Reason[];
}

export interface Preview {
  preview: string;
  verb: string;
  count: number;
  capped: boolean;
  by_task: { task: string; count: number }[];
  sampled: boolean;
  needs: { type_count: boolean; admin: boolean };
  about_seconds: number | null;
}
export interface BulkRun {
  id: string;
  verb: string;
  q: string;
  state: "running" | "stopping" | "stopped" | "done" | "failed";
  done: number;
  skipped: number;
  failed: number;
  expected: number;
  started_at: Time;
  ended_at: Time | null;
  by: string;
}

export interface Queue {
  name: string;
  state: "open" | "paused" | "closed";
  paused: { by: string | null; reason: string | null; at: Time | null } | null;
  counts: StateCounts;
  oldest_ready_seconds: number | null;
  bound: number | null;
  overflow: string | null;
  limits: string[];
  workers: number;
  tasks: number;
}

export interface Task {
  name: string;
  queue: string;
  priority: number;
  retry: string | null;
  timeout: string | null;
  limits: string[];
  breaker: string | null;
  args_schema_json: string | null;
  versions: string[];
  workers: number;
  deprecated?: string | null;
  last_error: { type: string; text: string; at?: Time; job?: string } | null;
  failed_24h?: number | null;
}

export interface ErrorGroup {
  fingerprint: string;
  type: string;
  text: string;
  tasks: string[];
  count: number;
  dead: number;
  first_seen: Time;
  last_seen: Time;
  versions: string[];
  hosts: string[];
  muted: { by: string | null; until: Time | null; reason: string | null } | null;
  example_job: string | null;
}
export interface ErrorGroupDetail extends ErrorGroup {
  frames: Frame[];
  jobs: Job[];
}

export interface DeadJob extends Job {
  died_at: Time;
}
export interface Facets {
  reasons: { reason: string; count: number }[];
  tasks: { task: string; count: number }[];
  capped: boolean;
}

export interface Tick {
  at: Time;
  local: string;
  note: string | null;
}
export interface Schedule {
  name: string;
  task: string;
  queue?: string | null;
  plain: string;
  cron?: string | null;
  every?: string | null;
  tz?: string | null;
  next: Tick[];
  state: string;
  origin: string;
  paused: { by: string | null; reason: string | null; at: Time | null } | null;
  overlap: string | null;
  catchup: string | null;
  version?: number;
  last: { due_at: Time; outcome: string; job: string | null }[];
  problem: string | null;
  code_says?: string | null;
  rule?: string | null;
}

export interface PlanCounts {
  total: number;
  done: number;
  running: number;
  waiting: number;
  dead: number;
  cancelled: number;
}
export interface Plan {
  id: string;
  name: string | null;
  state: string;
  counts: PlanCounts;
  created_at: Time;
  ended_at: Time | null;
}
export interface PlanNode {
  id: string;
  label: string;
  task: string | null;
  state: State;
  x: number;
  y: number;
  layer: number;
  count?: number | null;
  states?: Partial<Record<State, number>> | null;
  job?: string | null;
}
export interface PlanDetail extends Plan {
  layout: {
    nodes: PlanNode[];
    edges: { from: string; to: string }[];
    width: number;
    height: number;
  } | null;
  failure: { text: string; job: string | null } | string | null;
}

export interface Worker {
  name: string;
  host: string;
  pid: number;
  state: "live" | "draining" | "lost";
  version: string | null;
  python: string | null;
  started_at: Time;
  last_beat_at: Time;
  lease_ends_at: Time | null;
  queues: string[];
  slots: number;
  busy: number;
  jobs: {
    id: string;
    task: string;
    started_at: Time;
    seconds: number;
    limit_seconds: number | null;
    progress: Progress | null;
  }[];
  loop_lag_ms: number | null;
  memory_bytes: number | null;
  speaks?: string | null;
}

export interface Limit {
  name: string;
  kind: "concurrency" | "rate" | "budget" | "fair";
  task: string | null;
  queue: string | null;
  size: number | string | null;
  used: number | null;
  waiting: number | null;
  keys: number | null;
  by: "code" | "people";
  per: string | null;
  burst: number | null;
}
export interface LimitKey {
  key: string;
  used: number;
  size: number;
  waiting: number;
  holders: string[];
}
export interface Breaker {
  name: string;
  state: "closed" | "open" | "half_open" | "forced_open";
  since: Time | null;
  until: Time | null;
  failures: number | null;
  calls: number | null;
  probes: number | string | null;
  waiting: number | null;
  history: { at: Time; state: string; text?: string | null }[];
}

export interface AuditLine {
  at: Time;
  by: string;
  address: string | null;
  verb: string;
  target: string;
  count: number | null;
  reason: string | null;
  before: string | null;
  after: string | null;
  request_id: string | null;
}

export interface Settings {
  settings: { name: string; value: string; origin: string }[];
  app: string | Record<string, unknown>;
  store: Record<string, unknown>;
  versions: Record<string, string>;
}
export interface Doctor {
  findings: { level: string; code: string; text: string; fix: string | null }[];
  ran_at: Time;
}
export interface User {
  name: string;
  role: Role;
  queues: string[] | null;
  payloads: boolean;
  created_at: Time;
  last_login_at: Time | null;
}
export interface Token {
  id: string;
  name: string;
  role: Role;
  purposes: string[];
  queues: string[] | null;
  tasks: string[] | null;
  expires_at: Time | null;
  last_used_at: Time | null;
  created_by: string | null;
}
export interface SearchItem {
  kind: string;
  text: string;
  href: string;
}

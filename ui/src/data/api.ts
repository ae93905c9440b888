/** The API's answers and bodies. Made by ui/generate_types.py; do not edit. */

export interface ActedJobs {
  status: string;
  jobs: number;
  held: number;
  left: number;
}

export interface ActionAnswer {
  status: string;
  state: State | null;
}

export interface AllSettings {
  settings: SettingItem[];
  app: string;
  store: StoreName;
  versions: Record<string, string>;
  limits: Record<string, number>;
}

export interface AttemptView {
  number: number;
  worker: string | null;
  started_at: string | null;
  ended_at: string | null;
  outcome: string;
  error: ErrorDetail | null;
  decision: string | null;
  traceback: string | null;
  logs: LogLine[];
}

export interface AttentionItem {
  level: "ok" | "warn" | "bad";
  text: string;
  evidence: string;
  cure: string;
  action: ScreenLink | null;
}

export interface AuditItem {
  at: string | null;
  by: string;
  address: string | null;
  browser: string | null;
  verb: string;
  target: string;
  count: number;
  before: string | null;
  after: string | null;
  request_id: string | null;
}

export interface BackfillAnswer {
  id: string;
  total: number;
  made: number;
  failed: number;
  concurrency: number;
  next_at: string | null;
  until: string | null;
  is_over: boolean;
  first_at: string | null;
  last_at: string | null;
  dry_run: boolean;
}

export interface BackfillBody {
  from: string;
  to: string;
  concurrency?: number;
  dry_run?: boolean;
}

export interface BackfillItem {
  id: string;
  total: number;
  made: number;
  failed: number;
  concurrency: number;
  next_at: string | null;
  until: string | null;
  is_over: boolean;
}

export interface Badge {
  text: string;
  color: string;
}

export interface BoundBody {
  maxsize: number | "code" | null;
  overflow?: "refuse" | null;
}

export interface BreakerBody {
  reason?: string | null;
}

export interface BreakerItem {
  name: string;
  state: "closed" | "open" | "half_open" | "forced_open" | "forced_closed";
  since: string | null;
  until: string | null;
  forced: ForcedBy | null;
  failures: number;
  calls: number;
  probes: number;
  probe_jobs: string[];
  waiting: number;
  last_error: string;
  rule: string;
  history: BreakerStep[];
}

export interface BreakerStep {
  at: string | null;
  before: string;
  state: string;
  text: string;
  by: string | null;
}

export interface BulkPreviewBody {
  verb: "retry" | "cancel" | "run_now" | "discard" | "move";
  q: string;
  reason?: string | null;
  to?: string | null;
}

export interface BulkPreviewView {
  preview: string;
  verb: "retry" | "cancel" | "run_now" | "discard" | "move";
  count: number;
  capped: boolean;
  by_task: JobsOfTask[];
  sampled: boolean;
  mark: string;
  needs: Needs;
  about_seconds: number;
}

export interface BulkRun {
  id: string;
  verb: "retry" | "cancel" | "run_now" | "discard" | "move";
  q: string;
  to: string | null;
  state: "running" | "stopping" | "stopped" | "done" | "failed";
  done: number;
  skipped: number;
  failed: number;
  expected: number;
  capped: boolean;
  started_at: string | null;
  ended_at: string | null;
  by: string;
  reason: string | null;
  error: string | null;
}

export interface BulkStartBody {
  preview: string;
  count?: number | null;
}

export interface ChangeLine {
  at: string | null;
  by: string;
  verb: string;
  target: string;
  count: number;
}

export interface ChangedSchedule {
  cron?: string | null;
  every?: string | number | null;
  at?: string | null;
  tz?: string | null;
  start?: string | null;
  end?: string | null;
  exclude?: string[] | null;
  fixed_delay?: boolean | null;
  task?: string | null;
  args_json?: string | null;
  kwargs_json?: string | null;
  plan_json?: string | null;
  queue?: string | null;
  priority?: number | null;
  overlap?: string | null;
  catchup?: string | null;
  catchup_window?: string | number | null;
  catchup_max?: number | null;
  jitter?: string | number | null;
  max_runs?: number | null;
  pause_on_failure?: boolean | null;
  version: number;
}

export interface Completion {
  items: CompletionItem[];
}

export interface CompletionItem {
  text: string;
  insert: string;
  note: string;
}

export interface CopyAnswer {
  id: string;
}

export interface Count {
  count: number;
  capped: boolean;
}

export interface DeadItem {
  id: string;
  task: string;
  queue: string;
  state: State;
  priority: number;
  attempt: number;
  max_attempts: number | null;
  created_at: string | null;
  run_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  worker: string | null;
  key: string | null;
  reason: string | null;
  last_error: ErrorText | null;
  progress: JobProgress | null;
  now: string;
  args_text: string | null;
  died_at: string | null;
  args_json: string | null;
  kwargs_json: string | null;
}

export interface Deleted {
  status: string;
}

export interface DoctorFinding {
  level: "ok" | "warning" | "error";
  code: string;
  text: string;
  fix: string | null;
}

export interface DoctorReport {
  findings: DoctorFinding[];
  ran_at: string | null;
}

export interface DrainAnswer {
  status: "draining" | "asked";
  running: number | null;
}

export interface EnqueueAnswer {
  id: string;
  created: boolean;
}

export interface ErrorDetail {
  type: string;
  text: string;
  frames: ErrorFrame[];
  cause: string | null;
}

export interface ErrorFrame {
  file: string;
  line: number | null;
  function: string;
  code: string | null;
  own: boolean;
}

export interface ErrorItem {
  fingerprint: string;
  type: string;
  text: string;
  tasks: string[];
  count: number;
  dead: number;
  first_seen: string | null;
  last_seen: string | null;
  versions: string[];
  hosts: string[];
  muted: MutedBy | null;
  example_job: string;
}

export interface ErrorText {
  type: string;
  text: string;
}

export interface ErrorView {
  fingerprint: string;
  type: string;
  text: string;
  tasks: string[];
  count: number;
  dead: number;
  first_seen: string | null;
  last_seen: string | null;
  versions: string[];
  hosts: string[];
  muted: MutedBy | null;
  example_job: string;
  counts_by_task: Record<string, number>;
  counts_by_version: Record<string, number>;
  counts_by_host: Record<string, number>;
  frames: ErrorFrame[];
  traceback: string | null;
  jobs: JobItem[];
}

export interface ExplanationView {
  id: string;
  state: State;
  at: string | null;
  sentence: string;
  reasons: ReasonView[];
}

export interface Facets {
  reasons: ReasonCount[];
  tasks: TaskCount[];
  capped: boolean;
}

export interface ForcedBy {
  by: string;
  at: string | null;
  reason: string | null;
}

export interface Headline {
  level: "ok" | "warn" | "bad";
  text: string;
}

export interface ItemsOfAuditItem {
  items: AuditItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfBreakerItem {
  items: BreakerItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfBulkRun {
  items: BulkRun[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfDeadItem {
  items: DeadItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfErrorItem {
  items: ErrorItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfJobItem {
  items: JobItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfLimitItem {
  items: LimitItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfPlanItem {
  items: PlanItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfQueueItem {
  items: QueueItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfScheduleItem {
  items: ScheduleItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfTaskItem {
  items: TaskItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfTokenItem {
  items: TokenItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfUserItem {
  items: UserItem[];
  cursor: string | null;
  partial: boolean;
}

export interface ItemsOfWorkerItem {
  items: WorkerItem[];
  cursor: string | null;
  partial: boolean;
}

export interface JobCount {
  count: number;
  capped: boolean;
  partial: boolean;
  by_state: Record<string, StateCount>;
}

export interface JobItem {
  id: string;
  task: string;
  queue: string;
  state: State;
  priority: number;
  attempt: number;
  max_attempts: number | null;
  created_at: string | null;
  run_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  worker: string | null;
  key: string | null;
  reason: string | null;
  last_error: ErrorText | null;
  progress: JobProgress | null;
  now: string;
  args_text: string | null;
}

export interface JobProgress {
  done: number;
  total: number | null;
  message: string | null;
  state: string | null;
}

export interface JobTransition {
  at: string;
  state: State;
  text: string;
}

export interface JobView {
  id: string;
  task: string;
  queue: string;
  state: State;
  priority: number;
  attempt: number;
  max_attempts: number | null;
  created_at: string | null;
  run_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  worker: string | null;
  key: string | null;
  reason: string | null;
  last_error: ErrorText | null;
  progress: JobProgress | null;
  now: string;
  args_text: string | null;
  args_json: string | null;
  kwargs_json: string | null;
  meta_json: string | null;
  result_json: string | null;
  masked: boolean;
  expires_at: string | null;
  result_until: string | null;
  version: string | null;
  plan: PlanOfJob | null;
  schedule: ScheduleOfJob | null;
  replaced_by: string | null;
  parents: string[];
  children: string[];
  cancel_asked: boolean;
  transitions: JobTransition[];
  attempts: AttemptView[];
  same_error: SameError | null;
  actions: Record<string, string | null>;
}

export interface JobsOfTask {
  task: string;
  count: number;
}

export interface KeyItem {
  key: string;
  used: number;
  size: number | null;
  tokens: number | null;
  waiting: number;
  closed_until: string | null;
  holders: string[];
}

export interface LastTick {
  due_at: string | null;
  outcome: string;
  job: string | null;
  is_plan: boolean;
  note: string | null;
}

export interface LimitChoice {
  size?: number | null;
  rate?: string | null;
  amount?: number | null;
  burst?: number | null;
  off?: boolean;
}

export interface LimitItem {
  name: string;
  kind: "concurrency" | "rate" | "budget" | "fair" | "queue";
  text: string;
  size: number | null;
  per: string | null;
  burst: number | null;
  used: number;
  waiting: number;
  keys: number;
  key: string;
  task: string | null;
  tasks: string[];
  queue: string | null;
  by: "code" | "people";
  in_code: string | null;
}

export interface LimitView {
  items: KeyItem[];
  cursor: string | null;
  partial: boolean;
  limit: LimitItem;
}

export interface LogLine {
  at: string | null;
  level: string;
  text: string;
}

export interface Me {
  user: string;
  role: "viewer" | "operator" | "admin";
  via: "session" | "token" | "hook" | "basic" | "dev";
  payloads: boolean;
  read_only: string | null;
  may: Record<string, boolean>;
  queues: string[] | null;
  app: string;
  version: string;
  title: string;
  badge: Badge | null;
  links: Record<string, string>;
  store: StoreName;
}

export interface MoveBody {
  to: string;
  create?: boolean;
}

export interface MuteBody {
  reason?: string | null;
}

export interface MutedBy {
  by: string;
  at: string | null;
  until: string | null;
  reason: string | null;
}

export interface Needs {
  type_count: boolean;
  admin: boolean;
}

export interface NewJobBody {
  task: string;
  args_json?: string | null;
  kwargs_json?: string | null;
  meta_json?: string | null;
  queue?: string | null;
  priority?: number | null;
  delay?: number | string | null;
  at?: string | null;
  expires?: number | string | null;
  key?: string | null;
}

export interface NewSchedule {
  cron?: string | null;
  every?: string | number | null;
  at?: string | null;
  tz?: string | null;
  start?: string | null;
  end?: string | null;
  exclude?: string[] | null;
  fixed_delay?: boolean | null;
  task?: string | null;
  args_json?: string | null;
  kwargs_json?: string | null;
  plan_json?: string | null;
  queue?: string | null;
  priority?: number | null;
  overlap?: string | null;
  catchup?: string | null;
  catchup_window?: string | number | null;
  catchup_max?: number | null;
  jitter?: string | number | null;
  max_runs?: number | null;
  pause_on_failure?: boolean | null;
  name: string;
}

export interface NewTokenAnswer {
  id: string;
  token: string;
}

export interface NewTokenBody {
  name: string;
  role?: "viewer" | "operator" | "admin" | null;
  purposes?: ("enqueue" | "work" | "metrics" | "scale")[];
  queues?: string[] | null;
  tasks?: string[] | null;
  payloads?: boolean | null;
  expires?: string | number | null;
}

export interface NewUserBody {
  name: string;
  password: string;
  role: "viewer" | "operator" | "admin";
  queues?: string[] | null;
  payloads?: boolean | null;
}

export interface NextRun {
  at: string;
  local: string;
  note: string | null;
}

export interface NextSchedule {
  name: string;
  task: string;
  plain: string;
  state: string;
  at: string | null;
}

export interface NoChoices {
}

export interface NumbersInForce {
  name: string;
  text: string;
  cap: number | null;
  rate: number | null;
  burst: number | null;
}

export interface Overview {
  headline: Headline;
  attention: AttentionItem[];
  states: Record<string, Count>;
  as_of: string | null;
  queues: QueueItem[];
  workers: WorkerFigures;
  error_groups: ErrorItem[];
  last_changes: ChangeLine[];
  schedules_next: NextSchedule[];
}

export interface PauseSchedule {
  reason?: string;
}

export interface PlanAnswer {
  status: string;
  state: PlanState;
  jobs: number | null;
}

export interface PlanBoxItem {
  id: string;
  kind: string;
  label: string;
  task: string | null;
  state: State | null;
  job: string | null;
  plan: string | null;
  count: number | null;
  states: Record<string, number> | null;
  layer: number;
  x: number;
  y: number;
}

export interface PlanCounts {
  total: number;
  done: number;
  running: number;
  waiting: number;
  dead: number;
  cancelled: number;
  gone: number;
}

export interface PlanErrorItem {
  text: string;
  type: string;
  job: string | null;
  reason: string | null;
}

export interface PlanItem {
  id: string;
  name: string | null;
  state: PlanState | null;
  counts: PlanCounts | null;
  jobs: number;
  created_at: string | null;
  ended_at: string | null;
  resumed: number;
  failure: PlanErrorItem | null;
}

export interface PlanLayoutAnswer {
  nodes: PlanBoxItem[];
  edges: Record<string, string>[];
  width: number;
  height: number;
  node_width: number;
  node_height: number;
}

export interface PlanOfJob {
  id: string;
  node: number;
  name: string | null;
}

export type PlanState = "running" | "failing" | "failed" | "cancelling" | "cancelled" | "done";

export interface PlanView {
  id: string;
  name: string | null;
  state: PlanState | null;
  counts: PlanCounts | null;
  jobs: number;
  created_at: string | null;
  ended_at: string | null;
  resumed: number;
  failure: PlanErrorItem | null;
  tree: Record<string, unknown>;
  layout: PlanLayoutAnswer;
  replaces: ReplacedJob | null;
  actions: Record<string, string | null>;
}

export interface PollAnswer {
  events: Record<string, unknown>[];
  since: string;
}

export interface PreviewAnswer {
  plain: string;
  tz: string;
  runs: NextRun[];
  note: string | null;
}

export interface PreviewBody {
  n?: number;
  after?: string | null;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  cure: string;
}

export interface PurgeBody {
  confirm: string;
  states?: ("scheduled" | "blocked" | "ready" | "dead")[];
}

export interface QueueItem {
  name: string;
  state: "open" | "paused" | "closed";
  closed: boolean;
  paused: StoppedBy | null;
  closed_by: StoppedBy | null;
  counts: Record<string, Count>;
  as_of: string | null;
  oldest_ready_seconds: number | null;
  depth: number;
  bound: number | null;
  bound_by: "code" | "people" | null;
  overflow: string | null;
  over: boolean;
  limits: string[];
  workers: number;
  tasks: number;
}

export interface ReasonBody {
  reason: string;
}

export interface ReasonCount {
  reason: string;
  count: number;
}

export interface ReasonView {
  code: string;
  text: string;
  unblock: string;
  command: string | null;
  is_blocking: boolean;
}

export interface Removed {
  status: string;
}

export interface ReplacedJob {
  job: string;
  plan: string | null;
}

export interface RetryBody {
  args_json?: string | null;
  kwargs_json?: string | null;
}

export interface RulePreviewBody {
  n?: number;
  after?: string | null;
  cron?: string | null;
  every?: string | number | null;
  at?: string | null;
  tz?: string | null;
  start?: string | null;
  end?: string | null;
  exclude?: string[] | null;
  fixed_delay?: boolean | null;
}

export interface RunAnswer {
  id: string;
  is_plan: boolean;
  status: string;
}

export interface RunBody {
  force?: boolean;
}

export interface RunningJob {
  id: string;
  task: string;
  queue: string;
  started_at: string | null;
  seconds: number;
  limit_seconds: number | null;
  progress: JobProgress | null;
}

export interface SameError {
  fingerprint: string;
  count: number;
}

export interface ScheduleDifference {
  field: string;
  now: string;
  code: string;
}

export interface ScheduleItem {
  name: string;
  state: "active" | "paused" | "missed" | "ended" | "damaged";
  problem: string | null;
  task: string | null;
  queue: string | null;
  is_plan: boolean;
  plain: string;
  cron: string | null;
  every: number | null;
  at: string | null;
  tz: string | null;
  next: NextRun[];
  next_at: string | null;
  last_at: string | null;
  last: LastTick[];
  run_count: number;
  skipped_count: number;
  waiting: number;
  origin: string | null;
  paused: SchedulePause | null;
  overlap: string | null;
  catchup: string | null;
  version: number | null;
}

export interface ScheduleOfJob {
  name: string;
  due_at: string | null;
  backfill: string | null;
}

export interface SchedulePause {
  by: string;
  reason: string | null;
  at: string | null;
}

export interface ScheduleView {
  name: string;
  state: "active" | "paused" | "missed" | "ended" | "damaged";
  problem: string | null;
  task: string | null;
  queue: string | null;
  is_plan: boolean;
  plain: string;
  cron: string | null;
  every: number | null;
  at: string | null;
  tz: string | null;
  next: NextRun[];
  next_at: string | null;
  last_at: string | null;
  last: LastTick[];
  run_count: number;
  skipped_count: number;
  waiting: number;
  origin: string | null;
  paused: SchedulePause | null;
  overlap: string | null;
  catchup: string | null;
  version: number | null;
  rule: string;
  fixed_delay: boolean;
  start: string | null;
  end: string | null;
  exclude: string[];
  catchup_window: number;
  catchup_max: number;
  jitter: number;
  max_runs: number | null;
  pause_on_failure: boolean;
  link_json: string | null;
  masked: boolean;
  code_says: string | null;
  code_differences: ScheduleDifference[];
  backfills: BackfillItem[];
}

export interface ScreenLink {
  label: string;
  href: string;
}

export interface SearchAnswer {
  items: SearchItem[];
}

export interface SearchItem {
  kind: "job" | "task" | "queue" | "schedule" | "plan" | "worker";
  text: string;
  href: string;
}

export interface SettingItem {
  name: string;
  value: string;
  origin: string;
}

export interface StackAnswer {
  stack: string;
  loop_lag_ms: number | null;
}

export interface Started {
  run: string;
}

export type State = "scheduled" | "blocked" | "ready" | "running" | "done" | "dead" | "cancelled";

export interface StateCount {
  count: number;
  capped: boolean;
}

export interface StopBody {
  reason?: string | null;
}

export interface StoppedBy {
  by: string | null;
  reason: string | null;
  at: string | null;
}

export interface StoreName {
  kind: string;
  url_redacted: string;
}

export interface TaskCount {
  task: string;
  count: number;
}

export interface TaskError {
  type: string;
  text: string;
  at: string | null;
  job: string | null;
  fingerprint: string;
}

export interface TaskItem {
  name: string;
  queue: string;
  priority: number;
  retry: string | null;
  timeout: string | null;
  limits: string[];
  breaker: string | null;
  expires: string | null;
  args_schema_json: string;
  aliases: string[];
  versions: string[];
  workers: number;
  last_error: TaskError | null;
  failed: number;
}

export interface TaskView {
  name: string;
  queue: string;
  priority: number;
  retry: string | null;
  timeout: string | null;
  limits: string[];
  breaker: string | null;
  expires: string | null;
  args_schema_json: string;
  aliases: string[];
  versions: string[];
  workers: number;
  last_error: TaskError | null;
  failed: number;
  served_by: TaskWorker[];
}

export interface TaskWorker {
  name: string;
  version: string;
  running: number;
}

export interface TokenItem {
  id: string;
  name: string;
  role: "viewer" | "operator" | "admin" | null;
  purposes: ("enqueue" | "work" | "metrics" | "scale")[];
  queues: string[] | null;
  tasks: string[] | null;
  payloads: boolean;
  created_at: string | null;
  created_by: string;
  expires_at: string | null;
  last_used_at: string | null;
}

export interface UserBody {
  password?: string | null;
  role?: "viewer" | "operator" | "admin" | null;
  queues?: string[] | null;
  payloads?: boolean | null;
}

export interface UserItem {
  name: string;
  role: "viewer" | "operator" | "admin";
  queues: string[] | null;
  payloads: boolean;
  created_at: string | null;
  last_login_at: string | null;
}

export interface WorkerFigures {
  live: number;
  slots: number;
  busy: number;
}

export interface WorkerItem {
  id: number;
  name: string;
  host: string;
  pid: number;
  state: "live" | "draining" | "lost";
  version: string;
  python: string | null;
  started_at: string | null;
  last_beat_at: string | null;
  lease_ends_at: string | null;
  queues: string[] | null;
  slots: number;
  busy: number;
  jobs: RunningJob[];
  jobs_partial: boolean;
  loop_lag_ms: number | null;
  cpu_seconds: number | null;
  memory_bytes: number | null;
  children: number | null;
  ended: number | null;
  tasks: string[] | null;
  speaks: number | null;
}

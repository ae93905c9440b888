/** What the API answers, under the names that the page uses. `api.ts` is made from the
 * server; what is written out here is what the server does not have yet.
 *
 * Texts of jobs travel as JSON text: a browser would change big integers. */
import type * as api from "./api";

export type { BulkRun, Count, Me, SearchItem } from "./api";
export type Preview = api.BulkPreviewView;
export type Attention = api.AttentionItem;
export type Progress = api.JobProgress;
export type Job = api.JobItem;
export type JobDetail = api.JobView;
export type DeadJob = api.DeadItem;
export type Attempt = api.AttemptView;
export type ErrorDetail = api.ErrorDetail;
export type LogLine = api.LogLine;
export type Explanation = api.ExplanationView;
export type Facets = api.Facets;
export type JobCount = Omit<api.JobCount, "by_state"> & { by_state: StateCounts };
export type Frame = api.ErrorFrame;
export type Task = api.TaskItem;
export type TaskDetail = api.TaskView;
export type ErrorGroup = api.ErrorItem;
export type ErrorGroupDetail = api.ErrorView;
export type Tick = api.NextRun;
export type Schedule = api.ScheduleItem;
export type ScheduleDetail = api.ScheduleView;
export type Worker = api.WorkerItem;
export type Limit = api.LimitItem;
export type LimitKey = api.KeyItem;
export type LimitDetail = api.LimitView;
export type Breaker = api.BreakerItem;
export type Stack = api.StackAnswer;
export type AuditLine = api.AuditItem;
export type Settings = api.AllSettings;
export type Doctor = api.DoctorReport;
export type User = api.UserItem;
export type Token = api.TokenItem;
export type PlanCounts = api.PlanCounts;
export type Plan = api.PlanItem;
export type PlanDetail = api.PlanView;
export type PlanLayout = api.PlanLayoutAnswer;
export type PlanNode = Omit<api.PlanBoxItem, "states"> & { states: Partial<Record<State, number>> | null };

/** Counts by state; a state without jobs may be absent. */
export type StateCounts = Partial<Record<State, api.Count>>;
export type Queue = Omit<api.QueueItem, "counts"> & { counts: StateCounts };
export type Overview = Omit<api.Overview, "states" | "queues"> & { states: StateCounts; queues: Queue[] };

export const STATES = ["scheduled", "blocked", "ready", "running", "done", "dead", "cancelled"] as const;
export type State = (typeof STATES)[number];
export type Role = "viewer" | "operator" | "admin";
export type Time = string;


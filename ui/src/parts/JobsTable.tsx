/** A list of jobs: one line each; on a phone three. */
import type { ComponentChildren } from "preact";

import type { Job } from "../data/schema";
import { formatDuration, secondsOf } from "../format";
import { now } from "../clock";
import { visible } from "../names";
import { navigate, toOne } from "../router";
import { known, t } from "../text";
import { Ago, Name, StateMark, TaskName } from "./basics";
import type { Rows } from "./rows";

interface JobsTableProps {
  jobs: readonly Job[];
  rows: Rows<Job>;
  /** Rows have a box to select them. */
  select?: boolean;
  isOld?: boolean;
}

export function JobsTable({ jobs, rows, select = false, isOld = false }: JobsTableProps) {
  const all = rows.chosen.length > 0 && rows.chosen.length >= jobs.length;
  return (
    <div class="scroll">
      <table class={isOld ? "tbl jobs old" : "tbl jobs"} aria-busy={isOld}>
        <thead>
          <tr>
            {select && (
              <th>
                <input
                  type="checkbox"
                  aria-label={t("jobs.select_all")}
                  checked={all}
                  ref={(box) => {
                    if (box) box.indeterminate = rows.chosen.length > 0 && !all;
                  }}
                  onChange={rows.toggleAll}
                />
              </th>
            )}
            <th>{t("col.state")}</th>
            <th>{t("col.task_args")}</th>
            <th>{t("col.now")}</th>
            <th>{t("col.queue")}</th>
            <th class="n">{t("col.attempt")}</th>
            <th class="n">{t("col.took")}</th>
            <th class="n">{t("col.age")}</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job, i) => (
            <Row key={job.id} job={job} i={i} rows={rows} select={select} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  job: Job;
  i: number;
  rows: Rows<Job>;
  select: boolean;
}

function Row({ job, i, rows, select }: RowProps) {
  const isChosen = rows.isChosen(job);
  return (
    <tr
      data-row
      class={rows.at === i ? "at" : undefined}
      aria-selected={select ? isChosen : undefined}
      onClick={(event) => {
        rows.setAt(i);
        const target = event.target as Element;
        if (!target.closest("a, button, input") && !getSelection()?.toString()) navigate(toOne("jobs", job.id));
      }}
    >
      {select && (
        <td onClick={(event) => event.stopPropagation()}>
          <input
            type="checkbox"
            aria-label={t("jobs.select", { task: job.task, id: job.id.slice(0, 8) })}
            checked={isChosen}
            onClick={(event) => {
              rows.setAt(i);
              rows.toggle(job, event.shiftKey);
            }}
          />
        </td>
      )}
      <td class="js">
        <StateMark state={job.state} />
      </td>
      <td class="cut jt">
        <a class="t" href={toOne("jobs", job.id)}>
          <TaskName name={job.task} />
        </a>{" "}
        {job.args_text && (
          <bdi class="args">{visible(job.args_text)}</bdi>
        )}
      </td>
      <td class={job.state === "done" ? "cut now q3" : "cut now"}>
        <Now job={job} />
      </td>
      <td class="q2 jq">
        <Name text={job.queue} />
      </td>
      <td class="n q2 ja">{attemptText(job)}</td>
      <td class="n q2 jr">{tookText(job)}</td>
      <td class="n q2 jg">
        <Ago at={job.created_at} bare />
      </td>
    </tr>
  );
}

/** What matters in the job's state. */
export function Now({ job }: { job: Job }): ComponentChildren {
  const { progress, last_error: error, state } = job;
  if (state === "running" && progress?.total) {
    return (
      <>
        <progress class="mini" value={progress.done} max={progress.total} aria-label={t("col.progress")} />
        {t("jobs.progress", { done: progress.done, total: progress.total })}
        {progress.message && (
          <>
            , <Name text={progress.message} />
          </>
        )}
      </>
    );
  }
  const due = secondsOf(job.run_at);
  if (state === "scheduled" && due !== null) {
    const left = due - now.value;
    const text = left > 0 ? formatDuration(Math.ceil(left)) : null;
    if (error && text) {
      return (
        <>
          {t("jobs.retry_in", { time: text })} <b><Name text={error.type.slice(error.type.lastIndexOf(".") + 1)} /></b>
        </>
      );
    }
    return text ? t("jobs.due_in", { time: text }) : t("jobs.due");
  }
  if (state === "dead" && error) {
    return (
      <>
        <b>
          <Name text={error.type.slice(error.type.lastIndexOf(".") + 1)} />
        </b>{" "}
        <Name text={error.text} />
      </>
    );
  }
  if (state === "dead" || state === "cancelled") return <>{known(`reason.${job.reason ?? ""}`, job.reason ?? job.now)}</>;
  return <Name text={job.now} />;
}

export function attemptText(job: Job): string {
  if (job.attempt < 1 || (job.attempt === 1 && !job.started_at)) return "";
  const most = job.max_attempts;
  return most && most > 1 && job.attempt <= most ? t("jobs.attempt", { n: job.attempt, most }) : String(job.attempt);
}

export function tookText(job: Job): string {
  const from = secondsOf(job.started_at);
  if (from === null) return "";
  const end = job.state === "running" ? now.value : secondsOf(job.finished_at);
  return end === null ? "" : formatDuration(Math.max(0, job.state === "running" ? Math.round(end - from) : end - from));
}

/** One job: what happened to it, and what can be done. */
import { part } from "../data/client";
import { actOnJob } from "../data/jobs";
import type { Explanation, JobDetail } from "../data/schema";
import { refusal } from "../data/session";
import { useData } from "../data/use";
import { formatCount } from "../format";
import { useKeys } from "../keys";
import { Act, Copy, copy } from "../parts/actions";
import { Ago, Name, StateMark, TaskName } from "../parts/basics";
import { openConfirm } from "../parts/Confirm";
import { openDialog } from "../parts/Dialog";
import { Problem, Skeleton } from "../parts/states";
import { toast } from "../parts/toasts";
import { navigate, params, setParams, to, toOne } from "../router";
import { useCrumb } from "../shell/title";
import { t } from "../text";
import { Aside } from "./job/Aside";
import { Attempts } from "./job/Attempts";
import { EditRetry } from "./job/EditRetry";
import { Life } from "./job/Life";
import { Raw } from "./job/Raw";
import { Running } from "./job/Running";
import { Gates, Why } from "./job/Why";

export function Job({ name }: { name: string }) {
  const topics = [`job:${name}`];
  const found = useData<JobDetail>(`jobs/${part(name)}`, {}, { topics });
  const why = useData<Explanation>(found.data ? `jobs/${part(found.data.id)}/explain` : null, {}, { topics, keep: true });
  const job = found.data;
  useCrumb(job ? (job.task.split(".").at(-1) ?? job.task) : "");
  const isGone = found.error?.status === 404; // also when it was there a moment ago
  if (found.error && (!job || isGone)) return <Problem error={found.error} retry={found.reload} />;
  if (!job) return found.isSlow ? <Skeleton /> : null;
  const reload = () => {
    found.reload();
    why.reload();
  };
  return (
    <>
      <JobHead job={job} reload={reload} />
      <Life job={job} />
      <Why job={job} why={why.data}>
        <Suggested job={job} reload={reload} />
      </Why>
      {job.state === "running" && <Running job={job} />}
      <div class="duo">
        <div>
          {(job.state === "blocked" || job.state === "ready" || job.state === "scheduled") && <Gates job={job} why={why.data} />}
          <Tabs job={job} />
        </div>
        <Aside job={job} action={<EditButton job={job} reload={reload} bare />} />
      </div>
    </>
  );
}

function JobHead({ job, reload }: { job: JobDetail; reload: () => void }) {
  const act = actsOf(job, reload);
  useKeys({
    r: () => act("retry"),
    b: () => act("run_now"),
    c: () => act("cancel"),
    d: () => act("discard"),
    e: () => edit(job, reload),
    y: () => void copy(job.id),
  });
  const isOver = job.finished_at !== null;
  return (
    <div class="head">
      <div class="grow">
        <div class="jh">
          <h1>
            <TaskName name={job.task} />
          </h1>
          <StateMark state={job.state} big />
        </div>
        <div class="meta">
          <span class="mono q2">
            {job.id}
            <Copy text={job.id} label={t("act.copy_id")} />
          </span>
          <span>
            <span class="q3">{t("meta.queue")}</span>
            <a href={to("queues", { open: job.queue })}>
              <Name text={job.queue} />
            </a>
          </span>
          <span>
            <span class="q3">{t("meta.priority")}</span>
            {job.priority}
          </span>
          <span>
            <span class="q3">{t(isOver ? `meta.${job.state}` as "meta.done" : "meta.made")}</span>
            <Ago at={job.finished_at ?? job.created_at} />
          </span>
        </div>
      </div>
      <div class="btns">
        {job.state === "dead" || job.state === "cancelled" || job.state === "done" ? (
          <Act verb="retry" icon="retry" keys="r" refused={job.actions["retry"]} onClick={() => act("retry")}>
            {t("act.retry")}
          </Act>
        ) : (
          <Act verb="cancel" kind="risk" icon="cancel" keys="c" refused={job.actions["cancel"]} onClick={() => act("cancel")}>
            {t("act.cancel")}
          </Act>
        )}
        {job.state === "dead" && <EditButton job={job} reload={reload} />}
        {job.state === "scheduled" && (
          <Act verb="run_now" icon="bolt" keys="b" refused={job.actions["run_now"]} onClick={() => act("run_now")}>
            {t("act.run_now")}
          </Act>
        )}
        <Act verb="duplicate" icon="copy" refused={job.actions["duplicate"]} onClick={() => void duplicate(job)}>
          {t("act.duplicate")}
        </Act>
        {job.state === "dead" && (
          <Act verb="discard" kind="risk" icon="x" square label={t("act.discard")} refused={job.actions["discard"]} onClick={() => act("discard")} />
        )}
      </div>
    </div>
  );
}

/** The action that we recommend. */
function Suggested({ job, reload }: { job: JobDetail; reload: () => void }) {
  const act = actsOf(job, reload);
  const group = job.same_error;
  return (
    <>
      {job.state === "dead" && (
        <Act verb="retry" kind="pri" icon="retry" refused={job.actions["retry"]} onClick={() => act("retry")}>
          {t("act.retry")}
        </Act>
      )}
      {job.state === "scheduled" && (
        <Act verb="run_now" kind="pri" icon="bolt" refused={job.actions["run_now"]} onClick={() => act("run_now")}>
          {t("act.run_now")}
        </Act>
      )}
      {group && (
        <a class="btn" href={to("errors", { open: group.fingerprint })}>
          {t("job.group", { count: formatCount(group.count) })}
        </a>
      )}
    </>
  );
}

function EditButton({ job, reload, bare }: { job: JobDetail; reload: () => void; bare?: boolean }) {
  if (bare && job.state !== "dead") return null;
  return (
    <Act
      verb="retry_edited"
      icon="edit"
      kind={bare ? "bare" : undefined}
      small={bare ?? false}
      keys={bare ? "" : "e"}
      refused={job.masked ? t("job.masked") : job.actions["edit"]}
      onClick={() => edit(job, reload)}
    >
      {t("act.edit")}
    </Act>
  );
}

function Tabs({ job }: { job: JobDetail }) {
  const tab = params.value.get("tab") ?? "attempts";
  const tabs = [
    ["attempts", t("job.attempts"), job.attempts.length],
    ["life", t("job.transitions"), job.transitions.length],
    ["raw", t("job.raw"), null],
  ] as const;
  return (
    <>
      <div class="tabs" role="tablist">
        {tabs.map(([key, text, n]) => (
          <button type="button" role="tab" id={`tab-${key}`} aria-selected={tab === key} aria-controls="panel" onClick={() => setParams({ tab: key === "attempts" ? null : key }, { replace: true })}>
            {text}
            {n !== null && <span class="ct">{n}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`}>
        {tab === "raw" ? <Raw job={job} /> : tab === "life" ? <Transitions job={job} /> : <Attempts job={job} />}
      </div>
    </>
  );
}

function Transitions({ job }: { job: JobDetail }) {
  return (
    <ol class="feed pad">
      {job.transitions.map((each) => (
        <li>
          <Ago at={each.at} bare />
          <span>
            <StateMark state={each.state} /> <Name text={each.text} />
          </span>
        </li>
      ))}
    </ol>
  );
}

type JobVerb = "retry" | "run_now" | "cancel" | "discard";

function actsOf(job: JobDetail, reload: () => void): (verb: JobVerb) => void {
  return (verb) => {
    const why = refusal(verb) ?? job.actions[verb];
    if (why) return toast(why, { state: "off" });
    const run = (done: () => void) => void actOnJob(verb, job.id, job.task).then((answer) => answer && done());
    if (verb !== "discard") return run(reload);
    const leave = () => navigate(to("jobs", { q: "state:dead" })); // here is nothing any more
    openConfirm({ title: t("confirm.discard", { n: 1 }), children: <p>{t("confirm.discard.what")}</p>, yes: t("confirm.discard.yes", { n: 1 }), risk: true, onYes: () => run(leave) });
  };
}

function edit(job: JobDetail, reload: () => void): void {
  const why = refusal("retry_edited") ?? (job.masked ? t("job.masked") : job.actions["edit"]);
  if (why) toast(why, { state: "off" });
  else openDialog(<EditRetry job={job} onDone={reload} />);
}

async function duplicate(job: JobDetail): Promise<void> {
  const answer = await actOnJob<{ id: string }>("duplicate", job.id, job.task);
  if (answer) navigate(toOne("jobs", answer.id));
}


/** One dead job, with everything that a decision needs. */
import { part } from "../../data/client";
import { actOnJob } from "../../data/jobs";
import type { DeadJob, JobDetail } from "../../data/schema";
import { refusal } from "../../data/session";
import { useData } from "../../data/use";
import { useKeys } from "../../keys";
import { Act, Button, Copy } from "../../parts/actions";
import { Arguments } from "../../parts/args";
import { Ago, Name, StateMark, TaskName } from "../../parts/basics";
import { openConfirm } from "../../parts/Confirm";
import { openDialog } from "../../parts/Dialog";
import { Icon } from "../../parts/Icon";
import { Problem } from "../../parts/states";
import { toast } from "../../parts/toasts";
import { Traceback } from "../../parts/Traceback";
import { to, toOne } from "../../router";
import { formatCount } from "../../format";
import { known, t } from "../../text";
import { errorText } from "../Dead";
import { EditRetry } from "../job/EditRetry";

interface ReviewProps {
  job: DeadJob;
  at: number;
  all: number;
  step: (by: number) => void;
  reload: () => void;
}

export function Review({ job, at, all, step, reload }: ReviewProps) {
  const found = useData<JobDetail>(`jobs/${part(job.id)}`, {}, { topics: [`job:${job.id}`] });
  const detail = found.data;
  const last = detail?.attempts.findLast((each) => each.error !== null);
  const done = () => {
    found.reload();
    reload();
  };
  const act = (verb: "retry" | "discard") => {
    const why = refusal(verb) ?? detail?.actions[verb];
    if (why) return toast(why, { state: "off" });
    const run = () => void actOnJob(verb, job.id, job.task).then((answer) => answer && done());
    if (verb === "retry") return run();
    openConfirm({ title: t("confirm.discard", { n: 1 }), children: <p>{t("confirm.discard.what")}</p>, yes: t("confirm.discard.yes", { n: 1 }), risk: true, onYes: run });
  };
  const edit = () => {
    const why = refusal("retry_edited") ?? (detail?.masked ? t("job.masked") : detail?.actions["edit"]);
    if (why) toast(why, { state: "off" });
    else if (detail) openDialog(<EditRetry job={detail} onDone={done} />);
  };
  useKeys({ r: () => act("retry"), e: edit, d: () => act("discard") });

  return (
    <div class="rev">
      <div class="sec">
        <div class="jh">
          <h2 class="sh">
            <a href={toOne("jobs", job.id)}>
              <TaskName name={job.task} />
            </a>
          </h2>
          <StateMark state={detail?.state ?? job.state} big />
          {job.reason && <span class="tag">{known(`reason.${job.reason}`, job.reason)}</span>}
        </div>
        <p class="q2 m8">{errorText(job)}</p>
        <div class="meta m8">
          <span class="mono q2">
            {job.id.slice(0, 13)}
            <Copy text={job.id} label={t("act.copy_id")} />
          </span>
          <span>
            <span class="q3">{t("meta.queue")}</span>
            <Name text={job.queue} />
          </span>
          <span>
            <span class="q3">{t("meta.attempt")}</span>
            {job.max_attempts ? t("jobs.attempt", { n: job.attempt, most: job.max_attempts }) : job.attempt}
          </span>
          <span>
            <span class="q3">{t("meta.dead")}</span>
            <Ago at={job.died_at ?? job.finished_at} />
          </span>
          {detail?.same_error && (
            <a class="a" href={to("errors", { open: detail.same_error.fingerprint })}>
              {t("job.group", { count: formatCount(detail.same_error.count) })}
            </a>
          )}
        </div>
      </div>
      {found.error && <Problem error={found.error} />}
      {last?.error && (
        <div class="sec">
          <Traceback error={last.error} text={last.traceback} />
        </div>
      )}
      {detail && (
        <div class="sec">
          <div class="ch">
            <h2>{t("args.title")}</h2>
          </div>
          {detail.masked ? <p class="q2">{t("job.masked")}</p> : <Arguments args={detail.args_json} kwargs={detail.kwargs_json} />}
        </div>
      )}
      <div class="foot">
        <Act verb="retry" kind="pri" icon="retry" keys="r" refused={detail?.actions["retry"]} onClick={() => act("retry")}>
          {t("act.retry")}
        </Act>
        <Act verb="retry_edited" icon="edit" keys="e" refused={detail?.actions["edit"]} onClick={edit}>
          {t("act.edit")}
        </Act>
        <Act verb="discard" kind="risk" icon="x" keys="d" refused={detail?.actions["discard"]} onClick={() => act("discard")}>
          {t("act.discard")}
        </Act>
        <span class="end q3 nw">{t("dead.at", { n: at + 1, all })}</span>
        <div class="btns join">
          <Button square label={t("keys.previous")} disabled={at <= 0} onClick={() => step(-1)}>
            <Icon name="up" />
          </Button>
          <Button square label={t("keys.next")} disabled={at >= all - 1} onClick={() => step(1)}>
            <Icon name="fall" />
          </Button>
        </div>
      </div>
    </div>
  );
}

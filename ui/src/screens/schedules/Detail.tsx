/** One schedule beside the list: its next ticks in both zones, its last ones, its rules. */
import type { ComponentChildren } from "preact";

import { change } from "../../data/act";
import { part } from "../../data/client";
import type { Schedule, ScheduleDetail, Tick } from "../../data/schema";
import { useData } from "../../data/use";
import { formatDay } from "../../format";
import { Act, Button } from "../../parts/actions";
import { Ago, Name, StateMark, TaskName } from "../../parts/basics";
import { By } from "../../parts/By";
import { Fact } from "../../parts/bits";
import { openConfirm } from "../../parts/Confirm";
import { openDialog } from "../../parts/Dialog";
import { setOpen } from "../../parts/open";
import { Problem } from "../../parts/states";
import { to, toOne } from "../../router";
import { known, rich, t } from "../../text";
import { lookOf, pauseOrResume, runNow } from "../Schedules";
import { BackfillForm } from "./Backfill";
import { ScheduleForm } from "./Form";

const TICKS = 10;

interface DetailProps {
  name: string;
  reload: () => void;
}

export function Detail({ name, reload }: DetailProps) {
  const path = `schedules/${part(name)}`;
  const found = useData<ScheduleDetail>(path, {}, { topics: ["schedules"], keep: true });
  const schedule = found.data;
  if (found.error) return <Problem error={found.error} />;
  if (!schedule) return null;
  const done = () => {
    found.reload();
    reload();
  };
  const isPaused = schedule.state === "paused";
  return (
    <>
      <section>
        <h2 class="sh">
          <Name text={schedule.name} />
        </h2>
        <p class="q2">
          <Name text={schedule.plain} />
          {schedule.tz && !schedule.plain.includes(schedule.tz) && `, ${schedule.tz}`}
        </p>
        {schedule.cron && (
          <p class="m8">
            <code class="cron">{schedule.cron}</code>
          </p>
        )}
        {schedule.paused && (
          <p class="note m8">
            <span>
              {t("queue.paused")} {rich("queue.by", { by: <By text={schedule.paused.by} /> })} <Ago at={schedule.paused.at} />
              {schedule.paused.reason && (
                <>
                  : <Name text={schedule.paused.reason} />
                </>
              )}
            </span>
          </p>
        )}
        {schedule.problem && (
          <p class="note m8" data-s="warn">
            <Name text={schedule.problem} />
          </p>
        )}
        <div class="btns act">
          <Act verb="run_schedule" icon="bolt" onClick={() => runNow(schedule, done)}>
            {t("act.run_now")}
          </Act>
          <Act verb="pause_schedule" icon={isPaused ? "play" : "pause"} onClick={() => pauseOrResume(schedule, done)}>
            {t(isPaused ? "queue.resume" : "queue.pause")}
          </Act>
          <Act verb="change_schedule" icon="edit" onClick={() => openDialog(<ScheduleForm schedule={schedule} onDone={done} />)}>
            {t("schedules.edit")}
          </Act>
          <Act verb="change_schedule" icon="stack" onClick={() => openDialog(<BackfillForm schedule={schedule} onDone={done} />)}>
            {t("backfill.short")}
          </Act>
          {schedule.origin !== "code" && schedule.code_says && (
            <Button icon="undo" onClick={() => void change("POST", `${path}/reset`, {}, t("schedules.reset.did", { name })).then((answer) => answer && done())}>
              {t("schedules.reset")}
            </Button>
          )}
          <Act verb="change_schedule" kind="risk" icon="x" square label={t("schedules.delete")} onClick={() => remove(schedule, reload)} />
        </div>
      </section>
      <section>
        <div class="ch">
          <h2>{t("schedules.next_ticks")}</h2>
        </div>
        <NextTicks ticks={schedule.next} />
      </section>
      <section>
        <div class="ch">
          <h2>{t("schedules.last")}</h2>
        </div>
        <ul class="lines">
          {[...schedule.last]
            .sort((a, b) => (b.due_at ?? "").localeCompare(a.due_at ?? ""))
            .slice(0, TICKS)
            .map((tick) => (
              <li>
                <span class="q2">{formatDay(tick.due_at ?? "")}</span>
                {tick.job ? (
                  <a href={toOne("jobs", tick.job)}>
                    <Outcome outcome={tick.outcome} />
                  </a>
                ) : (
                  <Outcome outcome={tick.outcome} />
                )}
                <span class="end q3 nw">
                  <Ago at={tick.due_at} />
                </span>
              </li>
            ))}
        </ul>
        {schedule.last.length === 0 && <p class="q3">{t("schedules.last.none")}</p>}
      </section>
      <section>
        <div class="ch">
          <h2>{t("schedules.rules")}</h2>
        </div>
        <dl class="dl">
          <Fact name={t("col.task")}>
            {schedule.task && (
              <a class="a" href={to("tasks", { open: schedule.task })}>
                <TaskName name={schedule.task} />
              </a>
            )}
          </Fact>
          <Fact name={t("schedules.overlap")}>{schedule.overlap}</Fact>
          <Fact name={t("schedules.catchup")}>{schedule.catchup}</Fact>
          <Fact name={t("schedules.zone")}>{schedule.tz}</Fact>
          <Fact name={t("schedules.origin")}>{known(`schedules.origin.${schedule.origin ?? ""}`, schedule.origin ?? "")}</Fact>
          <Fact name={t("schedules.code_says")}>{schedule.code_says && <Name text={schedule.code_says} />}</Fact>
        </dl>
      </section>
    </>
  );
}

function Outcome({ outcome }: { outcome: string }): ComponentChildren {
  return <StateMark state={lookOf(outcome)} word={known(`tick.${outcome}`, outcome)} />;
}

/** Ticks to come: the page's time, the schedule's own, and what the clock does to them. */
export function NextTicks({ ticks }: { ticks: readonly Tick[] }) {
  if (ticks.length === 0) return <p class="q3">{t("schedules.next.none")}</p>;
  return (
    <ol class="next">
      {ticks.map((tick) => (
        <li class={tick.note ? "dst" : undefined}>
          <Ago at={tick.at} />
          <b>
            <Name text={tick.local} />
          </b>
          <span class="q3">{formatDay(tick.at)}</span>
          {tick.note && (
            <p>
              <Name text={tick.note} />
            </p>
          )}
        </li>
      ))}
    </ol>
  );
}

function remove(schedule: Schedule, reload: () => void): void {
  const { name } = schedule;
  openConfirm({
    title: t("schedules.delete.title", { name }),
    children: <p>{t(schedule.origin === "code" ? "schedules.delete.code" : "schedules.delete.what")}</p>,
    yes: t("schedules.delete"),
    risk: true,
    onYes: () =>
      void change("DELETE", `schedules/${part(name)}`, {}, t("schedules.deleted", { name })).then((done) => {
        if (!done) return;
        setOpen(null);
        reload();
      }),
  });
}

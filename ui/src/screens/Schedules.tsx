/** What runs next, does the clock matter? */
import { change } from "../data/act";
import { part } from "../data/client";
import type { Schedule } from "../data/schema";
import { refusal } from "../data/session";
import { usePages } from "../data/pages";
import { formatTime } from "../format";
import { Act } from "../parts/actions";
import { Ago, Head, Name, Tag } from "../parts/basics";
import { Duo } from "../parts/bits";
import { openConfirm } from "../parts/Confirm";
import { openDialog } from "../parts/Dialog";
import { More } from "../parts/More";
import { opened, setOpen, toggleOpen } from "../parts/open";
import { useRows } from "../parts/rows";
import { Empty, Problem, Skeleton } from "../parts/states";
import { toast } from "../parts/toasts";
import { params, to } from "../router";
import { known, rich, t } from "../text";
import { Detail } from "./schedules/Detail";
import { ScheduleForm } from "./schedules/Form";

export function Schedules() {
  const list = usePages<Schedule>("schedules", {}, ["schedules"]);
  const { items: data, error, isSlow, reload } = list;
  const schedules = data ?? [];
  const chosen = opened();
  const rows = useRows(schedules, {
    id: (schedule) => schedule.name,
    onOpen: (schedule) => toggleOpen(schedule.name),
    keys: { p: () => current && pauseOrResume(current, reload) },
  });
  const current = rows.current ?? schedules.find((schedule) => schedule.name === chosen);
  return (
    <>
      <Head one title={t("nav.schedules")} lede={data && ledeOf(schedules)}>
        <Act verb="change_schedule" icon="plus" onClick={() => openDialog(<ScheduleForm onDone={reload} />)}>
          {t("schedules.new")}
        </Act>
      </Head>
      {error && !data && <Problem error={error} retry={reload} />}
      {isSlow && <Skeleton />}
      {data && schedules.length === 0 && (
        <Empty title={t("schedules.none")} command="durio schedules create nightly --cron '30 2 * * *' TASK">
          {t("schedules.none.what")}
        </Empty>
      )}
      <Duo
        label={t("schedules.one")}
        onClose={() => setOpen(null)}
        side={chosen && <Detail key={chosen} name={chosen} reload={reload} />}
        list={
          schedules.length > 0 && (
            <>
              <div class="scroll">
                <table class="tbl">
                  <thead>
                    <tr>
                      <th>{t("schedules.one")}</th>
                      <th class="n">{t("schedules.next")}</th>
                      <th>{t("schedules.last")}</th>
                      <th class="wide-only">{t("schedules.rules")}</th>
                      <th class="wide-only">{t("schedules.origin")}</th>
                      <td />
                      <td />
                    </tr>
                  </thead>
                  <tbody>
                    {schedules.map((schedule, i) => (
                      <Row key={schedule.name} schedule={schedule} isAt={rows.at === i} isOpen={schedule.name === chosen} reload={reload} />
                    ))}
                  </tbody>
                </table>
              </div>
              <More list={list} />
            </>
          )
        }
      />
    </>
  );
}

interface RowProps {
  schedule: Schedule;
  isAt: boolean;
  isOpen: boolean;
  reload: () => void;
}

function Row({ schedule, isAt, isOpen, reload }: RowProps) {
  const next = schedule.next[0];
  return (
    <tr
      data-row
      class={isAt || isOpen ? "at" : undefined}
      aria-selected={isOpen}
      onClick={(event) => {
        if (!(event.target as Element).closest("a, button")) toggleOpen(schedule.name);
      }}
    >
      <td class="cut">
        <a class="grp2" href={to("schedules", { ...Object.fromEntries(params.value), open: schedule.name })}>
          <b class="cut">
            <Name text={schedule.name} />
          </b>
          <small class="cut">
            <Name text={schedule.plain} />
          </small>
        </a>
      </td>
      <td class="n nw">{next && <Ago at={next.at} />}</td>
      <td>
        <Ticks schedule={schedule} />
      </td>
      <td class="wide-only q2 nw">{[schedule.overlap && t("schedules.overlap.is", { rule: schedule.overlap }), schedule.catchup && t("schedules.catchup.is", { rule: schedule.catchup })].filter(Boolean).join(", ")}</td>
      <td class="wide-only q2 nw">{schedule.origin && known(`schedules.origin.short.${schedule.origin}`, schedule.origin)}</td>
      <td class="nw">
        <Note schedule={schedule} />
      </td>
      <td class="n nw">
        <span class="acts">
          <Act verb="run_schedule" kind="bare" small square icon="bolt" label={t("schedules.run.one", { name: schedule.name })} onClick={() => runNow(schedule, reload)} />
        </span>
      </td>
    </tr>
  );
}

/** The last ticks, the newest at the end. */
export function Ticks({ schedule }: { schedule: Schedule }) {
  const last = [...schedule.last].sort((a, b) => (a.due_at ?? "").localeCompare(b.due_at ?? "")).slice(-20);
  if (last.length === 0) return <span class="q3">{t("schedules.last.none.short")}</span>;
  return (
    <span class="slots sm tk">
      {last.map((tick) => (
        <i data-s={lookOf(tick.outcome)} data-tip={`${formatTime(tick.due_at ?? "")}\n${known(`tick.${tick.outcome}`, tick.outcome)}`} />
      ))}
    </span>
  );
}

export function lookOf(outcome: string): string {
  if (outcome === "done" || outcome === "running" || outcome === "dead") return outcome;
  if (outcome === "failed") return "dead";
  return outcome === "late" ? "warn" : "off";
}

function Note({ schedule }: { schedule: Schedule }) {
  if (schedule.problem) {
    return (
      <Tag state="blocked">
        <Name text={schedule.problem} />
      </Tag>
    );
  }
  if (schedule.state === "paused") return <Tag state="off">{t("queue.paused")}</Tag>;
  if (schedule.state !== "active") return <Tag state={schedule.state === "missed" ? "dead" : "off"}>{known(`schedules.state.${schedule.state}`, schedule.state)}</Tag>;
  return null;
}

export function pauseOrResume(schedule: Schedule, reload: () => void): void {
  const why = refusal("pause_schedule");
  if (why) return toast(why, { state: "off" });
  const path = `schedules/${part(schedule.name)}`;
  const { name } = schedule;
  if (schedule.state === "paused") {
    void change("POST", `${path}/resume`, {}, t("queue.resumed", { name })).then((done) => done && reload());
    return;
  }
  openConfirm({
    title: t("queue.pause.title", { name }),
    children: <p>{t("schedules.pause.what")}</p>,
    ask: { label: t("reason.label"), hint: t("reason.hint") },
    yes: t("queue.pause"),
    onYes: (reason) => void change("POST", `${path}/pause`, reason ? { reason } : {}, t("queue.paused.did", { name })).then((done) => done && reload()),
  });
}

export function runNow(schedule: Schedule, reload: () => void): void {
  const why = refusal("run_schedule");
  if (why) return toast(why, { state: "off" });
  void change("POST", `schedules/${part(schedule.name)}/run`, {}, t("schedules.ran", { name: schedule.name })).then((done) => done && reload());
}

function ledeOf(schedules: readonly Schedule[]) {
  const active = schedules.filter((each) => each.state === "active");
  const troubled = schedules.filter((each) => each.problem !== null || each.state === "missed");
  const first = active
    .flatMap((each) => each.next.slice(0, 1).map((tick) => ({ name: each.name, at: tick.at })))
    .sort((a, b) => a.at.localeCompare(b.at))[0];
  return (
    <>
      {first ? rich("schedules.lede", { name: first.name, time: <Ago at={first.at} /> }) : t("schedules.lede.none")}{" "}
      {troubled.length > 0 && rich("schedules.lede.trouble", { n: troubled.length, name: troubled[0]?.name ?? "" })}
    </>
  );
}

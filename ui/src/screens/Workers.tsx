/** Who does what, who is unwell? */
import { change } from "../data/act";
import { part } from "../data/client";
import type { Worker } from "../data/schema";
import { refusal } from "../data/session";
import { usePages } from "../data/pages";
import { formatBytes, formatDuration } from "../format";
import { visible } from "../names";
import { Act, Copy } from "../parts/actions";
import { Ago, Head, Name, Since, Tag, TaskName } from "../parts/basics";
import { type Slot, Slots } from "../parts/bits";
import { openConfirm } from "../parts/Confirm";
import { closeDialog, Dialog, DialogHead, openDialog } from "../parts/Dialog";
import { Icon } from "../parts/Icon";
import { More } from "../parts/More";
import { opened, setOpen, toggleOpen } from "../parts/open";
import { useRows } from "../parts/rows";
import { Empty, Problem, Skeleton } from "../parts/states";
import { toast } from "../parts/toasts";
import { visibleBlock } from "../names";
import { toOne } from "../router";
import { rich, t } from "../text";

const NEAR_LIMIT = 0.7;
const LAG_MS = 100; // above this a loop is too busy to keep its promises
const COLUMNS = 9;

export function Workers() {
  const list = usePages<Worker>("workers", {}, ["workers"]);
  const { items: data, error, isSlow, reload } = list;
  const workers = data ?? [];
  const rows = useRows(workers, { id: (worker) => worker.name, onOpen: (worker) => toggleOpen(worker.name) });
  return (
    <>
      <Head one title={t("nav.workers")} lede={data && ledeOf(workers)} />
      {error && !data && <Problem error={error} retry={reload} />}
      {isSlow && <Skeleton />}
      {data && workers.length === 0 && (
        <Empty title={t("workers.none")} command="durio worker MODULE:APP">
          {t("workers.none.what")}
        </Empty>
      )}
      {workers.length > 0 && (
        <>
          <div class="scroll">
            <table class="tbl wk">
              <thead>
                <tr>
                  <th>{t("col.worker")}</th>
                  <th>{t("col.slots")}</th>
                  <th class="n">{t("col.busy")}</th>
                  <th class="n">{t("col.lag")}</th>
                  <th class="n">{t("col.memory")}</th>
                  <th class="n">{t("col.beat")}</th>
                  <th>{t("facts.version")}</th>
                  <th class="n">{t("col.up")}</th>
                  <td />
                </tr>
              </thead>
              <tbody>
                {workers.map((worker, i) => (
                  <Row key={worker.name} worker={worker} isAt={rows.at === i} onAt={() => rows.setAt(i)} reload={reload} />
                ))}
              </tbody>
            </table>
          </div>
          <More list={list} />
          <ul class="legend key2">
            <li data-s="running">
              <i class="key" />
              {t("slots.busy")}
            </li>
            <li data-s="warn">
              <i class="key" />
              {t("slots.near")}
            </li>
            <li>
              <i class="key e" />
              {t("slots.free")}
            </li>
            <li data-s="dead">
              <i class="key x" />
              {t("slots.lost")}
            </li>
          </ul>
        </>
      )}
    </>
  );
}

interface RowProps {
  worker: Worker;
  isAt: boolean;
  onAt: () => void;
  reload: () => void;
}

function Row({ worker, isAt, onAt, reload }: RowProps) {
  const isOpen = opened() === worker.name || opened() === String(worker.id);
  const isLost = worker.state === "lost";
  const lag = worker.loop_lag_ms;
  const classes = [isOpen && "open", isAt && "at", isLost && "lost"].filter(Boolean).join(" ");
  return (
    <>
      <tr
        data-row
        class={classes || undefined}
        onClick={(event) => {
          onAt();
          if (!(event.target as Element).closest("a, button, input")) setOpen(isOpen ? null : worker.name);
        }}
      >
        <td>
          <button type="button" class="tw" aria-expanded={isOpen} onClick={() => setOpen(isOpen ? null : worker.name)}>
            <Icon name="right" />
            <span class="grp2">
              <span>
                <b>
                  <Name text={worker.name} />
                </b>{" "}
                {worker.state !== "live" && <Tag state={isLost ? "dead" : "warn"}>{t(`worker.${worker.state}`)}</Tag>}
              </span>
              <small>{worker.queues?.length ? <Name text={worker.queues.join(", ")} /> : t("worker.all_queues")}</small>
            </span>
          </button>
        </td>
        <td>
          <Slots slots={slotsOf(worker)} />
        </td>
        <td class="n nw">
          {worker.busy}
          <span class="q3"> {t("kpi.of", { n: worker.slots })}</span>
        </td>
        <td class="n nw c" data-s={lag !== null && lag >= LAG_MS ? "warn" : undefined}>
          {lag !== null && formatDuration(lag / 1000)}
        </td>
        <td class="n nw">{worker.memory_bytes !== null && formatBytes(worker.memory_bytes)}</td>
        <td class="n q2 nw c" data-s={isLost ? "dead" : undefined}>
          <Ago at={worker.last_beat_at} bare />
        </td>
        <td class="mono q2">{worker.version && <Name text={worker.version} />}</td>
        <td class="n q2 nw">
          <Since at={worker.started_at} />
        </td>
        <td class="n nw">
          <Act verb="drain_worker" kind="bare" small square icon="drain" label={t("worker.drain.one", { name: worker.name })} refused={refusedOf(worker)} onClick={() => drain(worker, reload)} />
          <Act verb="stack_worker" kind="bare" small square icon="stack" label={t("worker.stack.one", { name: worker.name })} refused={isLost ? t("worker.is_lost") : null} onClick={() => void showStack(worker)} />
        </td>
      </tr>
      {isOpen && (
        <tr class="more">
          <td colSpan={COLUMNS}>
            <Detail worker={worker} />
          </td>
        </tr>
      )}
    </>
  );
}

function Detail({ worker }: { worker: Worker }) {
  return (
    <div class="sx">
      <div>
        <h2>{t("worker.jobs")}</h2>
        {worker.jobs.length === 0 && <p class="q2">{t("worker.idle")}</p>}
        <ul class="slist">
          {worker.jobs.map((job) => (
            <li>
              <a class="t cut" href={toOne("jobs", job.id)}>
                <TaskName name={job.task} />
              </a>
              <progress
                class={isNear(job) ? "near" : undefined}
                value={job.limit_seconds ? Math.min(job.seconds, job.limit_seconds) : (job.progress?.done ?? 0)}
                max={job.limit_seconds ?? job.progress?.total ?? 1}
                aria-label={t("worker.limit")}
              />
              <span class="q3 cut">{job.progress ? t("jobs.progress", { done: job.progress.done, total: job.progress.total ?? 0 }) : job.limit_seconds ? t("worker.limit.is", { time: formatDuration(job.limit_seconds) }) : ""}</span>
              <span class="n">
                <Since at={job.started_at} />
              </span>
            </li>
          ))}
        </ul>
      </div>
      <div>
        <h2>{t("facts.title")}</h2>
        <dl class="dl">
          <dt>{t("worker.host")}</dt>
          <dd>
            <Name text={worker.host} />
          </dd>
          <dt>{t("worker.pid")}</dt>
          <dd class="mono">{worker.pid}</dd>
          {worker.python && (
            <>
              <dt>Python</dt>
              <dd>{worker.python}</dd>
            </>
          )}
          <dt>{t("worker.started")}</dt>
          <dd>
            <Ago at={worker.started_at} />
          </dd>
          <dt>{t("worker.lease")}</dt>
          <dd>
            <Ago at={worker.lease_ends_at} />
          </dd>
        </dl>
      </div>
    </div>
  );
}

function slotsOf(worker: Worker): Slot[] {
  const isLost = worker.state === "lost";
  const used = worker.jobs.map((job): Slot => {
    const text = `${visible(job.task)}, ${formatDuration(job.seconds)}`;
    return { state: isLost ? "dead" : isNear(job) ? "warn" : "running", tip: text, href: toOne("jobs", job.id) };
  });
  const unknown = Math.max(0, worker.busy - used.length);
  const free = Math.max(0, worker.slots - used.length - unknown);
  const plain = (state: Slot["state"], tip: string): Slot => ({ state, tip });
  return [...used, ...Array.from({ length: unknown }, () => plain(isLost ? "dead" : "running", t("slots.busy"))), ...Array.from({ length: free }, () => plain("free", t("slots.free")))];
}

function isNear(job: Worker["jobs"][number]): boolean {
  return job.limit_seconds !== null && job.seconds > job.limit_seconds * NEAR_LIMIT;
}

function refusedOf(worker: Worker): string | null {
  if (worker.state === "lost") return t("worker.is_lost");
  return worker.state === "draining" ? t("worker.is_draining") : null;
}

function drain(worker: Worker, reload: () => void): void {
  openConfirm({
    title: t("worker.drain.title", { name: worker.name }),
    children: <p>{t("worker.drain.what", { n: worker.busy })}</p>,
    yes: t("worker.drain"),
    risk: true,
    onYes: () => void change("POST", `workers/${part(worker.name)}/drain`, {}, t("worker.drained", { name: worker.name })).then((done) => done && reload()),
  });
}

async function showStack(worker: Worker): Promise<void> {
  const why = refusal("stack_worker");
  if (why) return toast(why, { state: "off" });
  const answer = await change<{ stack: string }>("POST", `workers/${part(worker.name)}/stack`, {}, "");
  if (!answer) return;
  openDialog(
    <Dialog class="keys stack" label={t("worker.stack.title", { name: worker.name })} onClose={closeDialog}>
      <DialogHead title={t("worker.stack.title", { name: worker.name })} onClose={closeDialog} />
      <div class="plain">
        <Copy text={answer.stack} label={t("act.copy")}>
          {t("act.copy")}
        </Copy>
        <pre class="trace text" tabIndex={0}>
          {visibleBlock(answer.stack)}
        </pre>
      </div>
    </Dialog>,
  );
}

function ledeOf(workers: readonly Worker[]) {
  const live = workers.filter((each) => each.state !== "lost");
  const lost = workers.filter((each) => each.state === "lost");
  const busy = live.reduce((sum, each) => sum + each.busy, 0);
  const slots = live.reduce((sum, each) => sum + each.slots, 0);
  const slow = live.filter((each) => (each.loop_lag_ms ?? 0) >= LAG_MS);
  return (
    <>
      {rich("workers.lede", { busy, slots, n: live.length })} {lost.length > 0 && rich("workers.lede.lost", { n: lost.length, name: lost[0]?.name ?? "" })}
      {slow.length > 0 && rich("workers.lede.slow", { n: slow.length, name: slow[0]?.name ?? "" })}
    </>
  );
}

/** Which line is slow, and what holds it? */
import { change } from "../data/act";
import { part } from "../data/client";
import type { Queue } from "../data/schema";
import { refusal } from "../data/session";
import { usePages } from "../data/pages";
import { formatDuration } from "../format";
import { Act } from "../parts/actions";
import { Head, Name, Num, Tag } from "../parts/basics";
import { Bar } from "../parts/bits";
import { openConfirm } from "../parts/Confirm";
import { Icon } from "../parts/Icon";
import { More } from "../parts/More";
import { opened, toggleOpen } from "../parts/open";
import { useRows } from "../parts/rows";
import { Empty, Problem, Skeleton } from "../parts/states";
import { toast } from "../parts/toasts";
import { to } from "../router";
import { rich, t } from "../text";
import { heldBy, waiting } from "./queues/figures";
import { QueueDetail } from "./queues/QueueDetail";

const SHOWN = ["scheduled", "blocked", "ready", "running", "dead"] as const;
const COLUMNS = 11;

export function Queues() {
  const list = usePages<Queue>("queues", {}, ["queues"]);
  const { items: data, error, isSlow, reload } = list;
  const queues = data ?? [];
  const rows = useRows(queues, {
    id: (queue) => queue.name,
    onOpen: (queue) => toggleOpen(queue.name),
    keys: {
      p: () => chosen && pauseOrResume(chosen, reload),
    },
  });
  const chosen = rows.current ?? queues.find((queue) => queue.name === opened());
  return (
    <>
      <Head one title={t("nav.queues")} lede={data && ledeOf(queues)} />
      {error && !data && <Problem error={error} retry={reload} />}
      {isSlow && <Skeleton />}
      {data && queues.length === 0 && (
        <Empty title={t("queues.none")} command="durio enqueue TASK '{}' --queue mail">
          {t("queues.none.what")}
        </Empty>
      )}
      {queues.length > 0 && (
        <div class="scroll">
          <table class="tbl queues">
            <thead>
              <tr>
                <th>{t("col.queue")}</th>
                <th>{t("col.depth")}</th>
                {SHOWN.map((state) => (
                  <th class="n">
                    <span class="st" data-s={state}>
                      <Icon name={`s-${state}`} />
                      {t(`state.${state}`)}
                    </span>
                  </th>
                ))}
                <th class="n">{t("col.oldest_ready")}</th>
                <th class="n">{t("nav.workers")}</th>
                <th>{t("col.held_by")}</th>
                <td />
              </tr>
            </thead>
            <tbody>
              {queues.map((queue, i) => (
                <Row key={queue.name} queue={queue} isAt={rows.at === i} most={mostWaiting(queues)} onAt={() => rows.setAt(i)} reload={reload} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      <More list={list} />
    </>
  );
}

interface RowProps {
  queue: Queue;
  isAt: boolean;
  most: number;
  onAt: () => void;
  reload: () => void;
}

function Row({ queue, isAt, most, onAt, reload }: RowProps) {
  const isOpen = opened() === queue.name;
  const body = `queue-${queue.name}`;
  const classes = [isOpen && "open", isAt && "at"].filter(Boolean).join(" ");
  const isPaused = queue.state === "paused";
  return (
    <>
      <tr
        data-row
        class={classes || undefined}
        onClick={(event) => {
          onAt();
          if (!(event.target as Element).closest("a, button, input")) toggleOpen(queue.name);
        }}
      >
        <td>
          <button type="button" class="tw" aria-expanded={isOpen} aria-controls={isOpen ? body : undefined} onClick={() => toggleOpen(queue.name)}>
            <Icon name="right" />
            <b class="t">
              <Name text={queue.name} />
            </b>
          </button>
        </td>
        <td class="qb">
          <Depth queue={queue} most={most} />
        </td>
        {SHOWN.map((state) => (
          <td class="n">
            <a href={to("jobs", { q: `queue:${queue.name} state:${state}` })}>
              <Num value={queue.counts[state]} />
            </a>
          </td>
        ))}
        <td class="n nw">{queue.oldest_ready_seconds === null ? "" : formatDuration(queue.oldest_ready_seconds)}</td>
        <td class="n">
          <Num value={queue.workers} />
        </td>
        <td class="nw">
          {heldBy(queue).map((each) => (
            <>
              <Tag state={each.state}>{each.text}</Tag>{" "}
            </>
          ))}
        </td>
        <td class="n">
          <Act verb="pause_queue" kind="bare" small square icon={isPaused ? "play" : "pause"} label={t(isPaused ? "queue.resume.one" : "queue.pause.one", { name: queue.name })} onClick={() => pauseOrResume(queue, reload)} />
        </td>
      </tr>
      {isOpen && (
        <tr class="more" id={body}>
          <td colSpan={COLUMNS}>
            <QueueDetail queue={queue} reload={reload} />
          </td>
        </tr>
      )}
    </>
  );
}

/** The queue's share of the deepest one, on a log scale: a small one is still seen. */
function Depth({ queue, most }: { queue: Queue; most: number }) {
  const states = ["running", "ready", "blocked", "scheduled"] as const;
  const all = states.reduce((sum, state) => sum + (queue.counts[state]?.count ?? 0), 0);
  const length = all === 0 ? 0 : Math.log1p(all) / Math.log1p(Math.max(most, 10));
  return <Bar tip={t("queues.log")} parts={states.map((state) => ({ state, share: all === 0 ? 0 : (length * (queue.counts[state]?.count ?? 0)) / all }))} />;
}

function mostWaiting(queues: readonly Queue[]): number {
  return Math.max(0, ...queues.map((queue) => waiting(queue.counts).count + (queue.counts.running?.count ?? 0)));
}

export function pauseOrResume(queue: Queue, reload: () => void): void {
  const path = `queues/${part(queue.name)}`;
  const why = refusal("pause_queue");
  if (why) return toast(why, { state: "off" });
  if (queue.state === "paused") {
    void change("POST", `${path}/resume`, {}, t("queue.resumed", { name: queue.name })).then((done) => done && reload());
    return;
  }
  openConfirm({
    title: t("queue.pause.title", { name: queue.name }),
    children: <p>{t("queue.pause.what")}</p>,
    ask: { label: t("reason.label"), hint: t("reason.hint") },
    yes: t("queue.pause"),
    onYes: (reason) => void change("POST", `${path}/pause`, reason ? { reason } : {}, t("queue.paused.did", { name: queue.name })).then((done) => done && reload()),
  });
}

function ledeOf(queues: readonly Queue[]) {
  const held = queues.filter((queue) => queue.state !== "paused" && heldBy(queue).length > 0);
  const paused = queues.filter((queue) => queue.state === "paused");
  const slowest = queues.filter((queue) => queue.state !== "paused").reduce<Queue | null>((worst, each) => ((each.oldest_ready_seconds ?? 0) > (worst?.oldest_ready_seconds ?? 0) ? each : worst), null);
  const age = slowest?.oldest_ready_seconds ?? 0;
  return (
    <>
      {slowest && age >= 1 ? rich("queues.lede.oldest", { name: slowest.name, time: formatDuration(age) }) : t("queues.lede.quiet")}{" "}
      {paused.length > 0 && rich("queues.lede.paused", { n: paused.length, names: paused.slice(0, 3).map((each) => each.name).join(", ") })}{" "}
      {held.length > 0 && rich("queues.lede.held", { n: held.length })}
    </>
  );
}

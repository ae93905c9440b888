/** What unfolds under a queue: its bound, who serves it, what can be done to it. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { change } from "../../data/act";
import { type Page, part } from "../../data/client";
import type { ActedJobs, BoundBody } from "../../data/api";
import { type Queue, type State, STATES, type Worker } from "../../data/schema";
import { useData } from "../../data/use";
import { formatCount } from "../../format";
import { Act, Button } from "../../parts/actions";
import { Ago, Name, Num, StateMark, Tag } from "../../parts/basics";
import { By } from "../../parts/By";
import { Fact } from "../../parts/bits";
import { openConfirm } from "../../parts/Confirm";
import { closeDialog, Dialog, openDialog } from "../../parts/Dialog";
import { Icon } from "../../parts/Icon";
import { toast } from "../../parts/toasts";
import { to } from "../../router";
import { rich, t } from "../../text";
import { pauseOrResume } from "../Queues";

interface Props {
  queue: Queue;
  reload: () => void;
}

export function QueueDetail({ queue, reload }: Props) {
  const isPaused = queue.state === "paused";
  const isClosed = queue.state === "closed";
  return (
    <div class="qx">
      <div>
        <h2>{t("facts.title")}</h2>
        <dl class="dl">
          <Fact name={t("col.state")}>
            {t(`queue.state.${queue.state}`)}
            {queue.paused && <StoppedBy {...queue.paused} />}
            {queue.closed_by && <StoppedBy {...queue.closed_by} />}
          </Fact>
          <Fact name={t("queue.bound")}>{queue.bound === null ? t("queue.bound.none") : t("queue.bound.is", { n: queue.bound })}
            {queue.over && <Tag state="warn">{t("queue.over")}</Tag>}</Fact>
          <Fact name={t("queue.limits")}>{queue.limits.length > 0 && queue.limits.map((each) => <><Name text={each} /><br /></>)}</Fact>
          <Fact name={t("nav.tasks")}>
            <a class="a" href={to("tasks", { queue: queue.name })}>
              {t("queue.tasks", { n: queue.tasks })}
            </a>
          </Fact>
          <Fact name={t("queue.kept.done")}>
            <Num value={queue.counts.done} />
          </Fact>
          <Fact name={t("queue.kept.cancelled")}>
            <Num value={queue.counts.cancelled} />
          </Fact>
        </dl>
      </div>
      <div>
        <h2>{t("queue.served_by")}</h2>
        <Servers name={queue.name} />
      </div>
      <div>
        <h2>{t("queue.actions")}</h2>
        <div class="btns">
          <Act verb="pause_queue" small icon={isPaused ? "play" : "pause"} onClick={() => pauseOrResume(queue, reload)}>
            {t(isPaused ? "queue.resume" : "queue.pause")}
          </Act>
          <Act verb="close_queue" small icon="lock" onClick={() => closeOrOpen(queue, reload)}>
            {t(isClosed ? "queue.open" : "queue.close")}
          </Act>
          <Act verb="bound_queue" small icon="edit" onClick={() => openDialog(<BoundForm queue={queue} reload={reload} />)}>
            {t("queue.set_bound")}
          </Act>
          <Act verb="move_queue" small icon="move" onClick={() => move(queue, reload)}>
            {t("queue.move")}
          </Act>
          <Act verb="purge_queue" kind="risk" small icon="x" onClick={() => openDialog(<PurgeForm queue={queue} reload={reload} />)}>
            {t("queue.purge")}
          </Act>
        </div>
        <p class="m8">
          <a class="a" href={to("jobs", { q: `queue:${queue.name}` })}>
            {t("queue.jobs")}
          </a>
        </p>
      </div>
    </div>
  );
}

function StoppedBy({ by, reason, at }: NonNullable<Queue["paused"]>): ComponentChildren {
  return (
    <span class="q2">
      {" "}
      {by && rich("queue.by", { by: <By text={by} /> })} <Ago at={at} />
      {reason && (
        <>
          : <Name text={reason} />
        </>
      )}
    </span>
  );
}

function Servers({ name }: { name: string }) {
  const { data } = useData<Page<Worker>>("workers", { limit: 200 }, { topics: ["workers"] });
  const serving = data?.items.filter((each) => each.state !== "lost" && (!each.queues?.length || each.queues.includes(name))) ?? [];
  if (!data) return null;
  if (serving.length === 0) return <p class="q2">{t("queue.no_worker.what")}</p>;
  return (
    <ul class="srv">
      {serving.slice(0, 8).map((each) => (
        <li class={each.state === "live" ? undefined : "q3"}>
          <Icon name="workers" />
          <a href={to("workers", { open: each.name })}>
            <Name text={each.name} />
          </a>
          {each.state !== "live" && t(`worker.${each.state}`)}
          <span>{t("worker.slots", { busy: each.busy, n: each.slots })}</span>
        </li>
      ))}
      {serving.length > 8 && <li class="q3">{t("more.n", { n: serving.length - 8 })}</li>}
    </ul>
  );
}

function closeOrOpen(queue: Queue, reload: () => void): void {
  const path = `queues/${part(queue.name)}`;
  const done = (answer: unknown) => answer && reload();
  if (queue.state === "closed") {
    void change("POST", `${path}/open`, {}, t("queue.opened", { name: queue.name })).then(done);
    return;
  }
  openConfirm({
    title: t("queue.close.title", { name: queue.name }),
    children: <p>{t("queue.close.what")}</p>,
    ask: { label: t("reason.label"), hint: t("reason.hint") },
    yes: t("queue.close"),
    risk: true,
    onYes: (reason) => void change("POST", `${path}/close`, reason ? { reason } : {}, t("queue.closed.did", { name: queue.name })).then(done),
  });
}

/** Do something with many jobs of a queue, and say how many there were. */
async function acted(path: string, body: unknown, did: "queue.moved" | "queue.purged", reload: () => void): Promise<void> {
  const answer = await change<ActedJobs>("POST", path, body, "");
  if (!answer) return;
  const more = [answer.left > 0 && t("queue.left", { n: answer.left }), answer.held > 0 && t("queue.held", { n: answer.held })];
  toast(t(did, { n: answer.jobs }), { more: more.filter(Boolean).join(", ") });
  reload();
}

function move(queue: Queue, reload: () => void): void {
  openConfirm({
    title: t("queue.move.title", { name: queue.name }),
    children: <p>{t("queue.move.what")}</p>,
    ask: { label: t("queue.move.to"), hint: "mail", required: true },
    yes: t("queue.move"),
    onYes: (target) => void acted(`queues/${part(queue.name)}/move`, { to: target }, "queue.moved", reload),
  });
}

function BoundForm({ queue, reload }: Props) {
  const [size, setSize] = useState(queue.bound === null ? "" : String(queue.bound));
  const isWrong = size !== "" && !/^\d+$/.test(size);
  const save = (body: BoundBody) => {
    closeDialog();
    void change("PUT", `queues/${part(queue.name)}/bound`, body, t("queue.bound.did", { name: queue.name })).then((done) => done && reload());
  };
  return (
    <Dialog class="confirm" label={t("queue.bound")} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isWrong) save({ maxsize: size === "" ? null : Number(size) });
        }}
      >
        <div>
          <h2>{t("queue.bound.title", { name: queue.name })}</h2>
          <label class="f">
            {t("queue.bound.size")}
            <input type="text" inputMode="numeric" autofocus placeholder={t("queue.bound.none")} value={size} aria-invalid={isWrong} onInput={(event) => setSize(event.currentTarget.value.trim())} />
          </label>
          <p class="q2">{t("queue.bound.then")}</p>
        </div>
        <footer>
          {queue.bound_by === "people" && (
            <Button icon="undo" onClick={() => save({ maxsize: "code" })}>
              {t("limits.give_back")}
            </Button>
          )}
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn pri" disabled={isWrong}>
            {t("act.save")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

const PURGED: readonly State[] = ["ready", "scheduled", "blocked", "dead"];

function PurgeForm({ queue, reload }: Props) {
  const [states, setStates] = useState<readonly State[]>([]);
  const [typed, setTyped] = useState("");
  const count = states.reduce((sum, state) => sum + (queue.counts[state]?.count ?? 0), 0);
  const isCapped = states.some((state) => queue.counts[state]?.capped);
  const isReady = typed === queue.name && states.length > 0;
  const toggle = (state: State) => setStates(states.includes(state) ? states.filter((each) => each !== state) : [...states, state]);
  return (
    <Dialog class="confirm" label={t("queue.purge")} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isReady) return;
          closeDialog();
          void acted(`queues/${part(queue.name)}/purge`, { states, confirm: typed }, "queue.purged", reload);
        }}
      >
        <div>
          <h2>{t("queue.purge.title", { name: queue.name })}</h2>
          <p>{t("queue.purge.what")}</p>
          <ul class="sum">
            {STATES.filter((state) => PURGED.includes(state)).map((state) => (
              <li>
                <label class="row">
                  <input type="checkbox" checked={states.includes(state)} onChange={() => toggle(state)} />
                  <StateMark state={state} />
                </label>
                <b class="n">{formatCount(queue.counts[state] ?? 0)}</b>
              </li>
            ))}
          </ul>
          <label class="f">
            {t("queue.purge.type", { name: queue.name })}
            <input type="text" autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        </div>
        <footer>
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn risk pri" disabled={!isReady}>
            {t("queue.purge.yes", { count: formatCount({ count, capped: isCapped }) })}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

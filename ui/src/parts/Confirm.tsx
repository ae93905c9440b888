/** Questions before something that touches many jobs, or cannot be undone. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { type BulkWish, preview, startBulk } from "../data/bulk";
import { actOnJobs, type JobVerb } from "../data/jobs";
import type { Job, Preview } from "../data/schema";
import { isAtLeast } from "../data/session";
import { formatCount, formatDuration } from "../format";
import { known, rich, t } from "../text";
import { TaskName } from "./basics";
import { closeDialog, Dialog, openDialog } from "./Dialog";
import { Icon } from "./Icon";

/** Above this many jobs the number is typed. */
export const AT_ONCE_MAX = 100;

interface ConfirmProps {
  title: string;
  children?: ComponentChildren;
  /** What must be typed before the button works. */
  typed?: { label: string; want: string; numeric?: boolean };
  /** A text that goes with it, such as a reason. */
  ask?: { label: string; hint: string; required?: boolean };
  yes: string;
  no?: string;
  risk?: boolean;
  onYes: (asked: string) => unknown;
}

export function openConfirm(props: ConfirmProps): void {
  openDialog(<Confirm {...props} />);
}

function Confirm({ title, children, typed, ask, yes, no, risk, onYes }: ConfirmProps) {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const plain = (value: string) => (typed?.numeric ? value.replace(/\D/g, "") : value);
  const isRight = (!typed || plain(text) === typed.want) && (!ask?.required || asked.trim() !== "");
  return (
    <Dialog class="confirm" label={title} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isRight) return;
          closeDialog();
          onYes(asked.trim());
        }}
      >
        <div>
          <h2>{title}</h2>
          {children}
          {ask && (
            <label class="f">
              {ask.label}
              <input type="text" placeholder={ask.hint} maxLength={500} autofocus={!typed} value={asked} onInput={(event) => setAsked(event.currentTarget.value)} />
            </label>
          )}
          {typed && (
            <label class="f">
              {typed.label}
              <input
                type="text"
                autofocus
                autocomplete="off"
                spellcheck={false}
                inputMode={typed.numeric ? "numeric" : "text"}
                value={text}
                onInput={(event) => setText(event.currentTarget.value)}
              />
            </label>
          )}
        </div>
        <footer>
          <button type="button" class="btn" onClick={closeDialog}>
            {no ?? t("act.leave")}
          </button>
          <button type="submit" class={risk ? "btn risk pri" : "btn pri"} disabled={!isRight}>
            {yes}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Act on the jobs that were chosen one by one. */
export function actOnChosen(verb: JobVerb, jobs: readonly Job[], onDone: () => void): void {
  const act = () => void actOnJobs(verb, jobs).then(onDone);
  const isMany = jobs.length > AT_ONCE_MAX;
  if (!isMany && verb !== "discard") return act();
  const counts = new Map<string, number>();
  for (const job of jobs) counts.set(job.task, (counts.get(job.task) ?? 0) + 1);
  openConfirm({
    title: t(`confirm.${verb}`, { n: jobs.length }),
    children: (
      <>
        <p>{rich(`confirm.${verb}.what`)}</p>
        <ByTask tasks={[...counts].map(([task, count]) => ({ task, count }))} />
      </>
    ),
    ...(isMany ? { typed: typedCount(jobs.length) } : {}),
    yes: t(`confirm.${verb}.yes`, { n: jobs.length }),
    risk: verb !== "retry" && verb !== "run_now",
    onYes: act,
  });
}

/** Act on all jobs that match a query: few at once, many after the number is typed. */
export async function actOnMatching(wish: BulkWish, onDone: () => void = () => undefined): Promise<void> {
  const found = await preview(wish);
  if (found) confirmBulk(found, onDone);
}

/** Ask about what was previewed, or start it if it is small and harmless. */
export function confirmBulk(found: Preview, onDone: () => void): void {
  const isRisk = found.verb === "discard" || found.verb === "cancel";
  const isTyped = found.needs.type_count || found.count > AT_ONCE_MAX;
  const start = (count: number | null) => void startBulk(found, count).then((done) => done && onDone());
  if (found.count === 0) {
    openConfirm({ title: t("bulk.none"), children: <p>{t("bulk.none.what")}</p>, yes: t("act.close"), onYes: () => undefined });
    return;
  }
  if (!isTyped && !isRisk) return start(null);
  const verb = known(`confirm.${found.verb}.what`, "");
  openConfirm({
    title: t("bulk.confirm", { verb: known(`bulk.do.${found.verb}`, found.verb), n: found.count, count: formatCount(found) }),
    children: (
      <>
        {verb && <p>{verb}</p>}
        {found.capped && <p>{t("bulk.capped", { n: found.count })}</p>}
        {found.needs.admin && !isAtLeast("admin") && <p class="note">{t("bulk.needs_admin")}</p>}
        <ByTask tasks={found.by_task} sampled={found.sampled} seconds={found.about_seconds} />
      </>
    ),
    ...(isTyped ? { typed: typedCount(found.count) } : {}),
    yes: t("bulk.confirm.yes", { verb: known(`bulk.do.${found.verb}`, found.verb), count: formatCount(found) }),
    risk: isRisk,
    onYes: () => start(isTyped ? found.count : null),
  });
}

function typedCount(count: number) {
  return { label: t("confirm.type", { n: count }), want: String(count), numeric: true };
}

function ByTask({ tasks, sampled, seconds }: { tasks: readonly { task: string; count: number }[]; sampled?: boolean; seconds?: number | null }) {
  const shown = tasks.slice(0, 8);
  const rest = tasks.slice(8).reduce((sum, each) => sum + each.count, 0);
  return (
    <ul class="sum">
      {shown.map((each) => (
        <li>
          <TaskName name={each.task} />
          <b class="n">{formatCount(each.count)}</b>
        </li>
      ))}
      {rest > 0 && (
        <li class="q2">
          {t("confirm.others")}
          <b class="n">{formatCount(rest)}</b>
        </li>
      )}
      {sampled && <li class="q3">{t("confirm.sampled")}</li>}
      {seconds != null && seconds > 1 && (
        <li class="q2">
          <Icon name="timer" />
          {t("confirm.takes", { time: formatDuration(seconds) })}
        </li>
      )}
    </ul>
  );
}

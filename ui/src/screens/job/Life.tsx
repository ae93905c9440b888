/** The life of a job on a time axis: attempts are numbered boxes, waits are lines. */
import { now } from "../../clock";
import type { JobDetail } from "../../data/schema";
import { formatDuration, formatClock, secondsOf } from "../../format";
import { Icon, type Shape } from "../../parts/Icon";
import { isState } from "../../parts/basics";
import { params, setParams } from "../../router";
import { known, t } from "../../text";

interface Piece {
  kind: "wait" | "try";
  from: number;
  to: number;
  /** Of a wait: in which state; of an attempt: how it ended. */
  state: string;
  number?: number;
  seconds?: number;
}
interface Placed extends Piece {
  x: number;
  width: number;
}

const TRY_MIN = 2.4; // per cent of the axis, so that a number fits
const WAIT_MIN = 1.6;
const ENDS = 2; // room for the signs at both ends
const TRIES_MAX = 14;
const LABELS = 5;
const FINE_SECONDS = 10; // below it the labels have fractions

export function Life({ job }: { job: JobDetail }) {
  const pieces = place(piecesOf(job, now.value));
  const first = pieces[0];
  const last = pieces.at(-1);
  if (!first || !last || job.attempts.length === 0) return null;
  const isOver = job.finished_at !== null;
  const end = isState(job.state) ? job.state : "done";
  const chosen = Number(params.value.get("attempt") ?? job.attempts.at(-1)?.number);
  return (
    <div class="sec lifesec" tabIndex={0} role="group" aria-label={t("life.label", { n: job.attempts.length, state: t(`state.${job.state}`) })}>
      <div class="life">
        <i class="e l" style={{ insetInlineStart: "0%" }}>
          <Icon name="plus" />
          <span>{t("life.enqueued")}</span>
        </i>
        {pieces.map((piece) => (piece.kind === "try" ? <Try piece={piece} isShown={piece.number === chosen && job.attempts.length > 1} /> : <Wait piece={piece} />))}
        <i class="e z" style={{ insetInlineStart: "100%" }} data-s={job.state}>
          {isOver && <Icon name={`s-${end}` as Shape} />}
          <span>{isOver ? t(`state.${job.state}`) : t("life.now")}</span>
        </i>
      </div>
      <ol class="xs">
        {Array.from({ length: LABELS }, (_, i) => (
          <li>{formatClock(new Date(timeAt(pieces, (i * 100) / (LABELS - 1)) * 1000).toISOString(), last.to - first.from < FINE_SECONDS)}</li>
        ))}
      </ol>
    </div>
  );
}

function Try({ piece, isShown }: { piece: Placed; isShown: boolean }) {
  const seconds = piece.to - piece.from;
  const outcome = known(`outcome.${piece.state}`, piece.state);
  const values = { n: piece.number ?? 0, outcome, time: formatDuration(seconds) };
  const tip = t(seconds > 0 ? "life.attempt" : "life.attempt.end", values);
  return (
    <button
      type="button"
      class={isShown ? "try last" : "try"}
      data-s={lookOf(piece.state)}
      data-tip={tip}
      aria-label={tip}
      style={{ insetInlineStart: `${piece.x}%`, inlineSize: `${piece.width}%` }}
      onClick={() => setParams({ attempt: String(piece.number), tab: null }, { replace: true })}
    >
      {piece.number}
    </button>
  );
}

function Wait({ piece }: { piece: Placed }) {
  const kind = piece.state === "blocked" ? "w b" : piece.state === "scheduled" ? "w" : "w r";
  const length = formatDuration(piece.to - piece.from);
  return (
    <i class={kind} style={{ insetInlineStart: `${piece.x}%`, inlineSize: `${piece.width}%` }} data-tip={t("life.wait", { state: known(`state.${piece.state}`, piece.state), time: length })}>
      {piece.width > 4 && <span>{length}</span>}
    </i>
  );
}

/** The look of an attempt's end: one that is tried again is a warning, no failure. */
export function lookOf(outcome: string): string {
  if (outcome === "done" || outcome === "running" || outcome === "dead" || outcome === "cancelled") return outcome;
  return "warn";
}

/** Return the waits and attempts of a job, oldest first, in seconds since 1970. */
export function piecesOf(job: JobDetail, until: number): Piece[] {
  const made = secondsOf(job.created_at) ?? until;
  const end = secondsOf(job.finished_at) ?? until;
  const out: Piece[] = [];
  let at = made;
  for (const each of job.attempts.slice(-TRIES_MAX)) {
    const ended = secondsOf(each.ended_at) ?? end;
    // The store keeps the begin of the last attempt only: the others are where they ended.
    const from = Math.max(at, secondsOf(each.started_at) ?? ended);
    const to = Math.max(from, ended);
    if (from > at) out.push({ kind: "wait", from: at, to: from, state: waitState(job, at, from) });
    out.push({ kind: "try", from, to, state: each.outcome, number: each.number });
    at = to;
  }
  if (end - at > 0.5) out.push({ kind: "wait", from: at, to: end, state: isWaiting(job) ? job.state : "ready" });
  return out;
}

function isWaiting(job: JobDetail): boolean {
  return job.state === "scheduled" || job.state === "blocked" || job.state === "ready";
}

/** Return in which state a job spent most of a wait, as far as its transitions tell. */
function waitState(job: JobDetail, from: number, to: number): string {
  const inside = job.transitions.filter((each) => {
    const at = secondsOf(each.at) ?? 0;
    return at >= from - 0.5 && at < to;
  });
  return inside.find((each) => each.state === "scheduled" || each.state === "blocked")?.state ?? "ready";
}

/** Give every piece its place in per cent: by its length, but wide enough to be seen. */
export function place(pieces: Piece[]): Placed[] {
  const least = (piece: Piece) => (piece.kind === "try" ? TRY_MIN : WAIT_MIN);
  const room = Math.max(0, 100 - 2 * ENDS - pieces.reduce((sum, piece) => sum + least(piece), 0));
  const seconds = pieces.reduce((sum, piece) => sum + piece.to - piece.from, 0) || 1;
  let x = ENDS;
  return pieces.map((piece) => {
    const width = least(piece) + (room * (piece.to - piece.from)) / seconds;
    const placed = { ...piece, x, width };
    x += width;
    return placed;
  });
}

function timeAt(pieces: readonly Placed[], x: number): number {
  const first = pieces[0];
  const last = pieces.at(-1);
  if (!first || !last) return 0;
  const piece = pieces.find((each) => x < each.x + each.width) ?? last;
  const part = Math.max(0, Math.min(1, (x - piece.x) / piece.width));
  return piece.from + part * (piece.to - piece.from);
}

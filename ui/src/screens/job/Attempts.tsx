/** The attempts of a job, newest first, each with its error and its last log lines. */
import { useState } from "preact/hooks";

import type { Attempt, JobDetail, LogLine } from "../../data/schema";
import { now } from "../../clock";
import { formatDuration, secondsOf } from "../../format";
import { Choice } from "../../parts/actions";
import { Clock, Name, StateMark } from "../../parts/basics";
import { Icon } from "../../parts/Icon";
import { Traceback } from "../../parts/Traceback";
import { params, setParams } from "../../router";
import { known, t } from "../../text";
import { visible } from "../../names";
import { lookOf } from "./Life";

const SHOWN = 10; // more are shown on request

export function Attempts({ job }: { job: JobDetail }) {
  const [isAll, setAll] = useState(false);
  const newest = [...job.attempts].sort((a, b) => b.number - a.number);
  const first = newest[0];
  if (!first) return <p class="pad q2">{t("attempts.none")}</p>;
  const chosen = params.value.get("attempt");
  const open = chosen === null ? first.number : Number(chosen);
  const shown = isAll ? newest : newest.slice(0, Math.max(SHOWN, newest.findIndex((each) => each.number === open) + 1));
  return (
    <>
      {shown.map((attempt) => (
        <Line key={attempt.number} attempt={attempt} worker={attempt.outcome === "running" ? (job.worker ?? attempt.worker) : attempt.worker} newest={first} isOpen={attempt.number === open} />
      ))}
      {shown.length < newest.length && (
        <p class="fin">
          <button type="button" class="btn sm" onClick={() => setAll(true)}>
            {t("attempts.all", { n: newest.length })}
          </button>
        </p>
      )}
    </>
  );
}

interface LineProps {
  attempt: Attempt;
  worker: string | null;
  newest: Attempt;
  isOpen: boolean;
}

function Line({ attempt, worker, newest, isOpen }: LineProps) {
  const { error } = attempt;
  const isSame = attempt !== newest && error !== null && error.type === newest.error?.type && error.text === newest.error.text;
  const body = `attempt-${attempt.number}`;
  return (
    <div class="att2">
      <button type="button" aria-expanded={isOpen} aria-controls={body} onClick={() => setParams({ attempt: isOpen ? "0" : String(attempt.number) }, { replace: true })}>
        <Icon name="right" />
        <b>#{attempt.number}</b>
        <Outcome outcome={attempt.outcome} />
        <span class="cut">
          {error && (
            <>
              <b>
                <Name text={error.type.slice(error.type.lastIndexOf(".") + 1)} />
              </b>{" "}
              <span class="q2">
                <Name text={error.text} />
                {isSame && t("attempts.same", { n: newest.number })}
                {attempt.decision && <span class="q3"> · {visible(attempt.decision)}</span>}
              </span>
            </>
          )}
        </span>
        <span class="q2 nw">{worker && <Name text={worker} />}</span>
        <span class="q2 nw n">
          <Clock at={attempt.started_at ?? attempt.ended_at} /> &nbsp; {tookText(attempt)}
        </span>
      </button>
      {isOpen && (
        <div id={body}>
          {error ? <Traceback key={attempt.number} error={error} text={attempt.traceback} /> : <p class="q2">{t("attempts.no_error")}</p>}
        </div>
      )}
      {isOpen && attempt.logs.length > 0 && <Logs attempt={attempt} />}
    </div>
  );
}

/** How an attempt ended: a failure that is tried again has the sign of a retry. */
export function Outcome({ outcome }: { outcome: string }) {
  const look = lookOf(outcome);
  if (look !== "warn") return <StateMark state={look} />;
  return (
    <span class="st" data-s="warn">
      <Icon name="retry" />
      {known(`outcome.${outcome}`, outcome)}
    </span>
  );
}

const LEVELS = ["debug", "info", "warning", "error"] as const;
type Level = (typeof LEVELS)[number];

function Logs({ attempt }: { attempt: Attempt }) {
  const [least, setLeast] = useState<Level>("debug");
  const shown = attempt.logs.filter((line) => rank(line) >= LEVELS.indexOf(least));
  return (
    <section class="flush">
      <div class="ch lh">
        <h2>{t("logs.title")}</h2>
        <span class="q3">{t("logs.what", { n: attempt.logs.length })}</span>
        <span class="end">
          <Choice label={t("logs.level")} value={least} options={LEVELS.map((level) => [level, t(`logs.${level}`)] as const)} onChange={setLeast} />
        </span>
      </div>
      <ul class={attempt.logs.some((line) => line.at) ? "logs" : "logs untimed"}>
        {shown.map((line) => (
          <li data-s={rank(line) >= 3 ? "dead" : rank(line) === 2 ? "warn" : undefined}>
            {attempt.logs.some((each) => each.at) && (line.at ? <Clock at={line.at} fraction /> : <span />)}
            <span class="lv">{line.level.toUpperCase()}</span>
            <p>
              <Name text={line.text} />
            </p>
          </li>
        ))}
        {shown.length === 0 && <li class="q3">{t("logs.none")}</li>}
      </ul>
    </section>
  );
}

function rank(line: LogLine): number {
  const level = line.level.toLowerCase();
  if (level === "critical" || level === "fatal") return 3;
  const found = LEVELS.findIndex((each) => each.startsWith(level) || level.startsWith(each));
  return found < 0 ? 1 : found;
}

function tookText(attempt: Attempt): string {
  const from = secondsOf(attempt.started_at);
  const to = attempt.ended_at === null ? Math.floor(now.value) : secondsOf(attempt.ended_at);
  return from === null || to === null ? "" : formatDuration(Math.max(0, to - from));
}

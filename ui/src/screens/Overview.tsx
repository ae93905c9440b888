/** Is all well, and if not, where? */
import type { Overview as Summary, StateCounts } from "../data/schema";
import { type Counted, formatCount, formatDuration } from "../format";
import { Ago, Clock, Head, Name, Num, Tag, TaskName } from "../parts/basics";
import { Kpi, Section } from "../parts/bits";
import { Icon, type Shape } from "../parts/Icon";
import { Prose } from "../parts/Prose";
import { Problem, Skeleton } from "../parts/states";
import { hrefOf } from "../shell/menu";
import { summary } from "../shell/summary";
import { rich, t } from "../text";
import { to } from "../router";
import { auditText } from "./audit/words";
import { Fresh } from "./Fresh";
import { heldBy, waiting } from "./queues/figures";

export function Overview() {
  const { data, error, isSlow, reload } = summary.value;
  if (!data && error) return <Problem error={error} retry={reload} />;
  if (!data) return isSlow ? <Loading /> : null;
  if (isFresh(data)) return <Fresh workers={data.workers} />;
  return (
    <>
      <div class="head">
        <div class="grow">
          <h1 class="headline" data-s={levelOf(data.headline.level)}>
            <Name text={data.headline.text} />
          </h1>
          <p class="lede">{rich("overview.lede", ledeOf(data))}</p>
        </div>
      </div>
      <Attention data={data} />
      <div class="cells">
        <Figures data={data} />
        <Queues data={data} />
        <Next data={data} />
        <Errors data={data} />
        <Changes data={data} />
      </div>
    </>
  );
}

function Loading() {
  return (
    <>
      <Head title={t("nav.overview")} lede={t("loading")} />
      <Skeleton rows={12} />
    </>
  );
}

function isFresh({ states, queues, error_groups: groups }: Summary): boolean {
  return Object.values(states).every((each) => each.count === 0) && queues.every((each) => waiting(each.counts).count === 0) && groups.length === 0;
}

function ledeOf({ states, workers, as_of: at }: Summary) {
  return {
    done: <>{formatCount(states.done ?? 0)}</>,
    running: <>{formatCount(states.running ?? 0)}</>,
    n: workers.live,
    at: <Clock at={at} />,
  };
}

/** What the place is about where one can act. */
const SIGNS = new Map<string, Shape>([
  ["dead", "s-dead"],
  ["jobs", "s-ready"],
  ["queues", "queues"],
  ["workers", "workers"],
  ["tasks", "tasks"],
  ["schedules", "schedules"],
  ["breakers", "bolt"],
  ["limits", "limits"],
  ["errors", "errors"],
  ["settings", "settings"],
]);

/** At most three things that need a look, the worst first. */
function Attention({ data }: { data: Summary }) {
  if (data.attention.length === 0) return null;
  return (
    <ul class="att" aria-label={t("overview.attention")}>
      {data.attention.slice(0, 3).map((each) => (
        <li data-s={levelOf(each.level)}>
          <Icon name={SIGNS.get(each.action?.href.split(/[?/]/)[0] ?? "") ?? "info"} class="c" />
          <p>
            {!isSame(each.text, data.headline.text) && (
              <>
                <b>
                  <Prose text={each.text} />
                </b>{" "}
              </>
            )}
            <span>
              <Prose text={each.evidence} />
            </span>
          </p>
          {each.action && (
            <a class="btn sm go" href={each.action.href}>
              <span>{each.action.label}</span>
            </a>
          )}
        </li>
      ))}
    </ul>
  );
}

/** The headline is the text of the only notice: it is not said twice. */
function isSame(text: string, headline: string): boolean {
  return text.replace(/\.$/, "") === headline.replace(/\.$/, "");
}

function Figures({ data }: { data: Summary }) {
  const { states, workers, queues } = data;
  const oldest = queues.reduce<(typeof queues)[number] | null>((worst, each) => ((each.oldest_ready_seconds ?? -1) > (worst?.oldest_ready_seconds ?? -1) ? each : worst), null);
  const jobs = (q: string) => to("jobs", { q });
  const busiest = workers.slots > 0 && workers.busy >= workers.slots;
  return (
    <>
      <Kpi name={t("kpi.waiting")} value={formatCount(sum(states, "ready", "blocked"))} detail={t("kpi.waiting.of", { ready: formatCount(states.ready ?? 0), blocked: formatCount(states.blocked ?? 0) })} href={jobs("state:ready,blocked")} state={states.blocked?.count ? "blocked" : "ready"} />
      <Kpi
        name={t("kpi.oldest")}
        value={oldest?.oldest_ready_seconds == null ? t("kpi.none") : formatDuration(oldest.oldest_ready_seconds)}
        detail={oldest?.oldest_ready_seconds == null ? t("kpi.oldest.none") : <Name text={oldest.name} />}
        href={jobs("state:ready")}
      />
      <Kpi name={t("kpi.running")} value={formatCount(states.running ?? 0)} detail={t("kpi.running.of", { n: workers.live })} href={jobs("state:running")} state="running" />
      <Kpi name={t("kpi.slots")} value={formatCount(workers.busy)} unit={t("kpi.of", { n: workers.slots })} detail={t(workers.live === 0 ? "kpi.slots.none" : busiest ? "kpi.slots.full" : "kpi.slots.free", { n: workers.slots - workers.busy })} href={hrefOf("workers")} />
      <Kpi name={t("kpi.scheduled")} value={formatCount(states.scheduled ?? 0)} detail={t("kpi.scheduled.what")} href={jobs("state:scheduled")} state="scheduled" />
      <Kpi name={t("kpi.dead")} value={formatCount(states.dead ?? 0)} detail={t(states.dead?.count ? "kpi.dead.some" : "kpi.dead.none")} href={hrefOf("dead")} state={states.dead?.count ? "dead" : undefined} />
    </>
  );
}

function Queues({ data }: { data: Summary }) {
  return (
    <Section class="c8 flush" title={t("nav.queues")} more={{ text: t("overview.queues.more"), href: hrefOf("queues") }}>
      <div class="scroll">
        <table class="tbl tight ov">
          <thead>
            <tr>
              <th>{t("col.queue")}</th>
              <th>{t("col.held_by")}</th>
              <th class="n">{t("kpi.running")}</th>
              <th class="n">{t("kpi.waiting")}</th>
              <th class="n">{t("kpi.dead")}</th>
              <th class="n">{t("col.oldest")}</th>
            </tr>
          </thead>
          <tbody>
            {data.queues.map((queue) => (
              <tr>
                <td>
                  <a class="t" href={to("queues", { open: queue.name })}>
                    <Name text={queue.name} />
                  </a>
                </td>
                <td>
                  {heldBy(queue).map((each) => (
                    <Tag state={each.state}>{each.text}</Tag>
                  ))}
                </td>
                <td class="n">
                  <Num value={queue.counts.running} />
                </td>
                <td class="n">
                  <Num value={waiting(queue.counts)} />
                </td>
                <td class="n">
                  <Num value={queue.counts.dead} />
                </td>
                <td class="n">{queue.oldest_ready_seconds === null ? "" : formatDuration(queue.oldest_ready_seconds)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function Next({ data }: { data: Summary }) {
  return (
    <Section class="c4" title={t("overview.next")} more={{ text: t("nav.schedules"), href: hrefOf("schedules") }}>
      {data.schedules_next.length === 0 ? (
        <p class="q3">{t("overview.next.none")}</p>
      ) : (
        <ol class="feed wide">
          {data.schedules_next.map((each) => (
            <li>
              <Ago at={each.at} />
              <span class="cut">
                <a class="t" href={to("schedules", { open: each.name })}>
                  <Name text={each.name} />
                </a>
              </span>
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}

function Errors({ data }: { data: Summary }) {
  return (
    <Section class="c8 flush" title={t("nav.errors")} more={{ text: t("overview.errors.more"), href: hrefOf("errors") }}>
      {data.error_groups.length === 0 ? (
        <p class="pad q3">{t("errors.none")}</p>
      ) : (
        <div class="scroll">
          <table class="tbl tight">
            <thead>
              <tr>
                <th>{t("col.error")}</th>
                <th>{t("col.task")}</th>
                <th class="n">{t("col.attempts")}</th>
                <th class="n">{t("kpi.dead")}</th>
                <th class="n">{t("col.last")}</th>
              </tr>
            </thead>
            <tbody>
              {data.error_groups.slice(0, 5).map((group) => (
                <tr>
                  <td class="cut">
                    <a class="t" href={to("errors", { open: group.fingerprint })}>
                      <Name text={group.type.slice(group.type.lastIndexOf(".") + 1)} />
                    </a>{" "}
                    <span class="q2">
                      <Name text={group.text} />
                    </span>
                  </td>
                  <td class="q2 nw">
                    {group.tasks[0] && <TaskName name={group.tasks[0]} />}
                    {group.tasks.length > 1 && ` ${t("more.n", { n: group.tasks.length - 1 })}`}
                  </td>
                  <td class="n">
                    <Num value={group.count} />
                  </td>
                  <td class="n">
                    <Num value={group.dead} />
                  </td>
                  <td class="n q2 nw">
                    <Ago at={group.last_seen} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}

function Changes({ data }: { data: Summary }) {
  return (
    <Section class="c4" title={t("overview.changes")} more={{ text: t("nav.audit"), href: hrefOf("audit") }}>
      {data.last_changes.length === 0 ? (
        <p class="q3">{t("overview.changes.none")}</p>
      ) : (
        <ol class="feed">
          {data.last_changes.slice(0, 8).map((line) => (
            <li>
              <Ago at={line.at} bare />
              <span>{auditText(line)}</span>
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}

function sum(states: StateCounts, ...names: (keyof StateCounts)[]): Counted {
  const found = names.map((name) => states[name]);
  return { count: found.reduce((all, each) => all + (each?.count ?? 0), 0), capped: found.some((each) => each?.capped) };
}

function levelOf(level: string): string {
  return level === "bad" ? "dead" : level === "warn" ? "warn" : "ok";
}


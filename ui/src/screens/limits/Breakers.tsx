/** Circuit breakers: their state, its history, and the hand that changes it. */
import type { ComponentChildren } from "preact";

import { now } from "../../clock";
import { change } from "../../data/act";
import { part } from "../../data/client";
import type { Breaker } from "../../data/schema";
import { formatCount, formatDuration, formatTime, secondsOf } from "../../format";
import { Act } from "../../parts/actions";
import { Ago, Name, Num, StateMark } from "../../parts/basics";
import { openConfirm } from "../../parts/Confirm";
import { Icon } from "../../parts/Icon";
import { rich, t } from "../../text";

const HISTORY_SECONDS = 3 * 3600;

interface Props {
  breakers: readonly Breaker[];
  reload: () => void;
}

export function Breakers({ breakers, reload }: Props) {
  return (
    <section class="sec flush">
      <div class="ch">
        <h2>{t("breakers.title")}</h2>
        <span class="q3">{t("breakers.range")}</span>
        <ul class="legend end">
          <li>
            <i class="bk cl" />
            {t("breakers.closed.what")}
          </li>
          <li>
            <i class="bk ho" />
            {t("breakers.half.what")}
          </li>
          <li>
            <i class="bk op" />
            {t("breakers.open.what")}
          </li>
        </ul>
      </div>
      <div class="scroll">
        <table class="tbl">
          <thead>
            <tr>
              <th>{t("breakers.one")}</th>
              <th>{t("col.now")}</th>
              <th class="bsc">{t("breakers.history")}</th>
              <th class="n">{t("breakers.failures")}</th>
              <th class="n">{t("kpi.waiting")}</th>
              <td />
              <td />
            </tr>
          </thead>
          <tbody>
            {breakers.map((breaker) => (
              <Row key={breaker.name} breaker={breaker} reload={reload} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ breaker, reload }: { breaker: Breaker; reload: () => void }) {
  const path = `breakers/${part(breaker.name)}`;
  const isOpen = breaker.state !== "closed" && breaker.state !== "forced_closed";
  const close = () => void change("POST", `${path}/close`, {}, t("breakers.closed.did", { name: breaker.name })).then((done) => done && reload());
  const reset = () => void change("POST", `${path}/reset`, {}, t("breakers.reset.did", { name: breaker.name })).then((done) => done && reload());
  return (
    <tr>
      <td>
        <span class="grp2">
          <b>
            <Name text={breaker.name} />
          </b>
          <small class="nw">
            <Name text={breaker.rule} />
          </small>
        </span>
      </td>
      <td class="nw">
        <BreakerState breaker={breaker} />{" "}
        <span class="q3">
          <Ago at={breaker.since} bare />
        </span>
      </td>
      <td class="bsc">
        <History breaker={breaker} />
      </td>
      <td class="n nw">
        <Num value={breaker.failures} />
        <span class="q3"> {t("breakers.of_calls", { n: breaker.calls })}</span>
      </td>
      <td class="n">
        <Num value={breaker.waiting} />
      </td>
      <td class="q2 nw">{noteOf(breaker)}</td>
      <td class="n nw">
        {isOpen ? (
          <Act verb="change_breaker" small onClick={close}>
            {t("breakers.close")}
          </Act>
        ) : (
          <Act verb="change_breaker" small kind="risk" onClick={() => openByHand(path, breaker, reload)}>
            {t("breakers.open")}
          </Act>
        )}{" "}
        <Act verb="change_breaker" small square icon="undo" label={t("breakers.reset", { name: breaker.name })} onClick={reset} />
      </td>
    </tr>
  );
}

function BreakerState({ breaker }: { breaker: Breaker }) {
  if (breaker.state === "closed" || breaker.state === "forced_closed") return <StateMark state="done" word={t(`breakers.state.${breaker.state}`)} />;
  const look = breaker.state === "half_open" ? "blocked" : "dead";
  return (
    <span class="st" data-s={look}>
      <Icon name="bolt" />
      {t(`breakers.state.${breaker.state}`)}
    </span>
  );
}

/** The last three hours: thin is closed, hatched half-open, full open. */
function History({ breaker }: { breaker: Breaker }) {
  const end = now.value;
  const start = end - HISTORY_SECONDS;
  const changes = [...breaker.history].map((each) => ({ at: secondsOf(each.at) ?? start, state: each.state })).sort((a, b) => a.at - b.at);
  const before = changes.filter((each) => each.at <= start).at(-1)?.state ?? (changes.length > 0 ? "closed" : breaker.state);
  const points = [{ at: start, state: before }, ...changes.filter((each) => each.at > start)];
  return (
    <div class="bs" role="img" aria-label={t("breakers.history")}>
      {points.map((point, i) => {
        const until = points[i + 1]?.at ?? end;
        const seconds = until - point.at;
        const kind = point.state === "closed" || point.state === "forced_closed" ? "cl" : point.state === "half_open" ? "ho" : "op";
        const tip = `${t(`breakers.state.${point.state}` as "breakers.state.open")} ${formatDuration(Math.round(seconds))}\n${formatTime(new Date(point.at * 1000).toISOString())}`;
        return <i class={kind} data-tip={tip} style={{ inlineSize: `${(100 * seconds) / HISTORY_SECONDS}%` }} />;
      })}
    </div>
  );
}

function noteOf(breaker: Breaker): ComponentChildren {
  if (breaker.state === "half_open") return t("breakers.probes", { n: breaker.probes });
  if (breaker.until) return rich("breakers.until", { time: <Ago at={breaker.until} /> });
  return "";
}

function openByHand(path: string, breaker: Breaker, reload: () => void): void {
  openConfirm({
    title: t("breakers.open.title", { name: breaker.name }),
    children: <p>{t("breakers.open.ask", { count: formatCount(breaker.waiting) })}</p>,
    ask: { label: t("reason.label"), hint: t("reason.hint"), required: true },
    yes: t("breakers.open"),
    risk: true,
    onYes: (reason) => void change("POST", `${path}/open`, { reason }, t("breakers.opened", { name: breaker.name })).then((done) => done && reload()),
  });
}

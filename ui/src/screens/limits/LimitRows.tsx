/** Limits and their fullest keys; a limit can be changed by hand, and given back to the code. */
import { useState } from "preact/hooks";

import { change } from "../../data/act";
import { part } from "../../data/client";
import type { Limit, LimitDetail } from "../../data/schema";
import { useData } from "../../data/use";
import { formatCount, formatNumber } from "../../format";
import { Act, Button } from "../../parts/actions";
import { Name, Num, Tag, TaskName } from "../../parts/basics";
import { type Slot, Slots } from "../../parts/bits";
import { closeDialog, Dialog, openDialog } from "../../parts/Dialog";
import { Icon } from "../../parts/Icon";
import { opened, toggleOpen } from "../../parts/open";
import { toOne } from "../../router";
import { rich, t } from "../../text";

const SQUARES_MAX = 40;

interface Props {
  limits: readonly Limit[];
  reload: () => void;
}

export function LimitRows({ limits, reload }: Props) {
  return (
    <section class="sec flush">
      <div class="ch">
        <h2>{t("queue.limits")}</h2>
        <span class="q3">{t("limits.what")}</span>
      </div>
      <div class="scroll">
        <table class="tbl">
          <thead>
            <tr>
              <th>{t("limits.one")}</th>
              <th>{t("limits.guards")}</th>
              <th>{t("limits.used")}</th>
              <th class="n">{t("limits.keys")}</th>
              <th class="n">{t("kpi.waiting")}</th>
              <td />
              <td />
            </tr>
          </thead>
          <tbody>
            {limits.map((limit) => (
              <Row key={limit.name} limit={limit} reload={reload} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ limit, reload }: { limit: Limit; reload: () => void }) {
  const isOpen = opened() === limit.name;
  return (
    <>
      <tr data-row class={isOpen ? "open" : undefined}>
        <td>
          <button type="button" class="tw" aria-expanded={isOpen} onClick={() => toggleOpen(limit.name)}>
            <Icon name="right" />
            <span class="grp2">
              <b>
                <Name text={limit.name} />
              </b>
              <small>
                {limit.text}
                {limit.key && t("limits.per", { key: limit.key })}
              </small>
            </span>
          </button>
        </td>
        <td class="q2">{limit.task ? <TaskName name={limit.task} /> : limit.queue && <Name text={limit.queue} />}</td>
        <td>
          <Use used={limit.used} size={!limit.key && isPlaces(limit) ? limit.size : null} />
        </td>
        <td class="n q2">{limit.key && <Num value={limit.keys} />}</td>
        <td class="n">
          <b class={limit.waiting ? "c" : "q3"} data-s="blocked">
            {formatCount(limit.waiting ?? 0)}
          </b>
        </td>
        <td class="nw">{limit.by === "people" && <Tag state="info">{t("limits.by_hand")}</Tag>}</td>
        <td class="n nw">
          <Act verb="change_limit" small icon="edit" refused={limit.kind === "fair" ? t("limits.fair") : null} onClick={() => openDialog(<LimitForm limit={limit} reload={reload} />)}>
            {t("limits.change")}
          </Act>
        </td>
      </tr>
      {isOpen && (
        <tr class="more">
          <td colSpan={7}>
            <Keys limit={limit} />
          </td>
        </tr>
      )}
    </>
  );
}

function Use({ used, size }: { used: number; size: number | null }) {
  if (size === null || size > SQUARES_MAX) return <span>{formatNumber(used)}</span>;
  return (
    <span class="row">
      <Slots small slots={squares(used, size, [])} />
      <span class="q2 nw">{t("jobs.progress", { done: used, total: size })}</span>
    </span>
  );
}

function Keys({ limit }: { limit: Limit }) {
  const { data } = useData<LimitDetail>(`limits/${part(limit.name)}`, {}, { topics: ["limits"], keep: true });
  if (!data) return null;
  if (data.items.length === 0) return <p class="pad q2">{t("limits.no_keys")}</p>;
  return (
    <ul class="klist pad">
      {data.items.map((each) => (
        <li>
          <span class="cut">{each.key ? <Name text={each.key} /> : t("limits.all")}</span>
          {each.size !== null && each.size <= SQUARES_MAX ? <Slots small slots={squares(each.used, each.size, each.holders)} /> : <span />}
          <span class="n q2">{each.size === null ? t("limits.in_use", { n: each.used }) : t("jobs.progress", { done: each.used, total: each.size })}</span>
          <span class="n">
            {each.waiting > 0 && (
              <b class="c" data-s="blocked">
                {t("limits.wait", { n: each.waiting })}
              </b>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}

function squares(used: number, size: number, holders: readonly string[]): Slot[] {
  return Array.from({ length: Math.max(used, size) }, (_, i): Slot => {
    const holder = holders[i];
    const state = i >= size ? "dead" : i < used ? (used >= size ? "warn" : "running") : "free";
    const tip = holder ? t("limits.holder", { id: holder.slice(0, 13) }) : t(i < used ? "slots.busy" : "slots.free");
    return holder ? { state, tip, href: toOne("jobs", holder) } : { state, tip };
  });
}

function LimitForm({ limit, reload }: { limit: Limit; reload: () => void }) {
  const [size, setSize] = useState(limit.size === null ? "" : limit.kind === "rate" ? `${limit.size}/${limit.per ?? "s"}` : String(limit.size));
  const path = `limits/${part(limit.name)}`;
  const isNumber = limit.kind !== "rate";
  const isWrong = size.trim() === "" || (isNumber && !/^\d+$/.test(size.trim()));
  const field = limit.kind === "rate" ? "rate" : limit.kind === "budget" ? "amount" : "size";
  const done = (answer: unknown) => answer && reload();
  return (
    <Dialog class="confirm" label={t("limits.title", { name: limit.name })} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isWrong) return;
          closeDialog();
          void change("PUT", path, { [field]: isNumber ? Number(size) : size.trim() }, t("limits.did", { name: limit.name })).then(done);
        }}
      >
        <div>
          <h2>{t("limits.title", { name: limit.name })}</h2>
          <p>{t("limits.change.what")}</p>
          {limit.in_code && <p>{rich("limits.in_code", { text: limit.in_code })}</p>}
          <label class="f">
            {t(limit.kind === "rate" ? "limits.rate" : limit.kind === "budget" ? "limits.amount" : "limits.size", { per: limit.per ?? "" })}
            <input type="text" autofocus placeholder={isNumber ? "5" : "100/m"} value={size} aria-invalid={isWrong} onInput={(event) => setSize(event.currentTarget.value)} />
          </label>
        </div>
        <footer>
          {limit.by === "people" && (
            <Button
              icon="undo"
              onClick={() => {
                closeDialog();
                void change("DELETE", `${path}/override`, {}, t("limits.given_back", { name: limit.name })).then(done);
              }}
            >
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

/** A limit of places; a rate or a budget has none to show. */
function isPlaces(limit: Limit): boolean {
  return limit.kind === "concurrency" || limit.kind === "fair" || (limit.kind === "queue" && limit.per === null);
}

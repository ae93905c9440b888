/** Dead letters: what do I decide about each? */
import type { ComponentChildren } from "preact";

import { address } from "../data/client";
import type { DeadJob, Facets } from "../data/schema";
import { refusal } from "../data/session";
import { useData, useList } from "../data/use";
import { formatCount } from "../format";
import { visible } from "../names";
import { Act, Button } from "../parts/actions";
import { Ago, Head, Name, TaskName } from "../parts/basics";
import { Bar } from "../parts/bits";
import { actOnMatching } from "../parts/Confirm";
import { Icon } from "../parts/Icon";
import { opened, setOpen } from "../parts/open";
import { useRows } from "../parts/rows";
import { Empty, Partial, Problem, Skeleton } from "../parts/states";
import { valuesOf, withValue } from "../query";
import { params, to } from "../router";
import { known, rich, t } from "../text";
import { Review } from "./dead/Review";

export function Dead() {
  const q = params.value.get("q") ?? "";
  const list = useList<DeadJob>("dead", { q }, { topics: ["dead"], id: (job) => job.id });
  const facets = useData<Facets>("dead/facets", {}, { topics: ["dead"] }).data;
  const jobs = list.items ?? [];
  const chosen = jobs.find((job) => job.id === opened()) ?? jobs[0] ?? null;
  const at = chosen ? jobs.indexOf(chosen) : -1;
  const step = (by: number) => {
    const next = jobs[at + by];
    if (next) setOpen(next.id);
    document.querySelectorAll("[data-row]")[at + by]?.scrollIntoView({ block: "nearest" });
  };
  useRows(jobs, { id: (job) => job.id, reset: q, keys: { j: () => step(1), k: () => step(-1), n: list.showFresh } });
  const all = `state:dead ${q}`.trim();

  if (list.items?.length === 0 && !q) return <NoDead />;
  return (
    <>
      <Head title={t("nav.dead")} lede={facets && ledeOf(facets)}>
        <a class="btn" href={address("dead/export", { q })} download="dead.jsonl">
          <Icon name="download" />
          {t("dead.export")}
        </a>
        <Act verb="retry" icon="retry" refused={refusal("retry")} onClick={() => void actOnMatching({ verb: "retry", q: all }, list.reload)}>
          {t(q ? "dead.retry_matching" : "dead.retry_all")}
        </Act>
      </Head>
      {list.error && <Problem error={list.error} retry={list.reload} />}
      {list.isSlow && <Skeleton />}
      <div class="tri">
        <div class="fc">
          {facets && <FacetList q={q} name="reason" title={t("col.reason")} rows={facets.reasons.map((each) => ({ value: each.reason, count: each.count, text: known(`reason.${each.reason}`, each.reason) }))} />}
          {facets && <FacetList q={q} name="task" title={t("col.task")} rows={facets.tasks.map((each) => ({ value: each.task, count: each.count, text: <TaskName name={each.task} /> }))} />}
        </div>
        <div>
          <div class="ch lh">
            <b>{t("dead.shown", { n: jobs.length })}</b>
            {list.fresh ? (
              <button type="button" class="pill" onClick={list.showFresh}>
                <Icon name="up" />
                {t("list.fresh", { count: list.fresh })}
              </button>
            ) : (
              <span class="q3">{t("dead.order")}</span>
            )}
            {q && (
              <a class="btn sm end" href={to("dead")}>
                {t("query.clear")}
              </a>
            )}
          </div>
          <ul class="inbox">
            {jobs.map((job) => (
              <Letter key={job.id} job={job} isAt={job === chosen} />
            ))}
          </ul>
          {list.partial && <Partial />}
          {list.hasMore && (
            <div class="fin">
              <Button onClick={list.more} disabled={list.isMore}>
                {t("list.more")}
              </Button>
            </div>
          )}
          {list.items && jobs.length === 0 && <p class="pad q2">{t("jobs.no_match")}</p>}
        </div>
        <div>{chosen && <Review key={chosen.id} job={chosen} at={at} all={jobs.length} step={step} reload={list.reload} />}</div>
      </div>
    </>
  );
}

function NoDead() {
  return (
    <>
      <Head title={t("nav.dead")} lede={t("dead.none.lede")} />
      <Empty title={t("dead.none")} command="durio dead ls">
        {t("dead.none.what")}
      </Empty>
    </>
  );
}

function Letter({ job, isAt }: { job: DeadJob; isAt: boolean }) {
  return (
    <li aria-current={isAt ? "true" : undefined} data-row>
      <a href={to("dead", { ...Object.fromEntries(params.value), open: job.id })}>
        <Icon name="s-dead" state="dead" class="c" />
        <b class="cut">
          <TaskName name={job.task} />
        </b>
        <Ago at={job.died_at ?? job.finished_at} bare />
        <small class="cut">{errorText(job)}</small>
        {job.args_text && <bdi class="args cut">{visible(job.args_text)}</bdi>}
      </a>
    </li>
  );
}

interface FacetRow {
  value: string;
  count: number;
  text: ComponentChildren;
}

function FacetList({ q, name, title, rows }: { q: string; name: string; title: string; rows: readonly FacetRow[] }) {
  const most = Math.max(1, ...rows.map((row) => row.count));
  const chosen = valuesOf(q, name);
  return (
    <div>
      <h2>{title}</h2>
      <ul>
        {rows.slice(0, 12).map((row) => {
          const isOn = chosen.includes(row.value);
          return (
            <li>
              <a href={to("dead", { q: withValue(q, name, isOn ? null : row.value) })} aria-current={isOn ? "true" : undefined}>
                <span class="cut">{row.text}</span>
                <span class="n">{formatCount(row.count)}</span>
                <Bar parts={[{ state: "dead", share: row.count / most }]} />
              </a>
            </li>
          );
        })}
      </ul>
    </div>
  );
}

export function errorText(job: DeadJob): ComponentChildren {
  const error = job.last_error;
  if (!error) return known(`reason.${job.reason ?? ""}`, job.reason ?? job.now);
  return <Name text={`${error.type.slice(error.type.lastIndexOf(".") + 1)}: ${error.text}`} />;
}

function ledeOf(facets: Facets) {
  const all = facets.reasons.reduce((sum, each) => sum + each.count, 0);
  const first = facets.tasks[0];
  const total = formatCount({ count: all, capped: facets.capped });
  if (!first || all === 0) return rich("dead.lede.one", { total: <>{total}</> });
  return rich("dead.lede", { total: <>{total}</>, count: <>{formatCount(first.count)}</>, task: visible(first.task.split(".").at(-1) ?? first.task) });
}

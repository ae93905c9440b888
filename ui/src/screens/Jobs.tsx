/** Find any job, act on many. */
import { useEffect, useState } from "preact/hooks";

import { useData, useList } from "../data/use";
import type { Job, JobCount, StateCounts } from "../data/schema";
import { STATES } from "../data/schema";
import type { JobVerb } from "../data/jobs";
import { formatCount } from "../format";
import { useKeys } from "../keys";
import { Act, Button } from "../parts/actions";
import { BulkBar } from "../parts/BulkBar";
import { Head } from "../parts/basics";
import { actOnMatching } from "../parts/Confirm";
import { openDialog } from "../parts/Dialog";
import { Icon } from "../parts/Icon";
import { JobsTable } from "../parts/JobsTable";
import { QueryBar } from "../parts/QueryBar";
import { useRows } from "../parts/rows";
import { Empty, Partial, Problem, Skeleton } from "../parts/states";
import { valuesOf, withValue, without } from "../query";
import { navigate, params, setParams, to, toOne } from "../router";
import { rich, t } from "../text";
import { Enqueue } from "./Enqueue";

export function Jobs() {
  const q = params.value.get("q") ?? "";
  const list = useList<Job>("jobs", { q }, { topics: ["jobs"], id: (job) => job.id });
  const counts = useData<JobCount>("jobs/count", { q: without(q, "state") }, { topics: ["jobs"], keep: true });
  const [isAll, setAll] = useState(false);
  useEffect(() => setAll(false), [q]);
  useNewJob();

  const jobs = list.items ?? [];
  const rows = useRows(jobs, {
    id: (job) => job.id,
    select: true,
    reset: q,
    onOpen: (job) => navigate(toOne("jobs", job.id)),
  });
  useKeys({ n: list.showFresh });
  const total = totalOf(counts.data, valuesOf(q, "state"));
  const isBad = list.error?.status === 400;

  return (
    <>
      <Head one title={t("nav.jobs")} lede={counts.data && <Lede counts={counts.data} filtered={without(q, "state") !== ""} />}>
        <Act verb="enqueue" icon="plus" onClick={() => setParams({ new: "1" })}>
          {t("jobs.new")}
        </Act>
      </Head>
      <div class="qrow">
        <QueryBar
          query={q}
          label={t("jobs.filter")}
          placeholder={t("jobs.filter.hint")}
          error={list.error}
          onChange={(next) => navigate(to("jobs", { q: next }))}
        />
      </div>
      {isBad && list.error && <Problem error={list.error} />}
      <Facets q={q} counts={counts.data} />
      <div class="listtop">
        <span>{total === null ? "" : t("jobs.order", { count: formatCount(total) })}</span>
        {list.fresh && (
          <button type="button" class="pill" onClick={list.showFresh}>
            <Icon name="up" />
            {t("list.fresh", { count: list.fresh })}
          </button>
        )}
      </div>
      {list.error && !isBad && <Problem error={list.error} retry={list.reload} />}
      {list.isSlow && <Skeleton rows={14} />}
      {jobs.length > 0 && <JobsTable jobs={jobs} rows={rows} select isOld={list.isOld} />}
      {list.items && jobs.length === 0 && !list.error && <Nothing q={q} />}
      {list.partial && <Partial />}
      <div class="fin">
        {list.hasMore ? (
          <Button onClick={list.more} disabled={list.isMore}>
            {t(list.isMore ? "loading" : "list.more")}
          </Button>
        ) : (
          jobs.length > 0 && t("list.end", { n: jobs.length })
        )}
      </div>
      <BulkBar
        rows={rows}
        onDone={list.reload}
        matching={total === null ? "" : formatCount(total)}
        isAll={isAll}
        states={valuesOf(q, "state")}
        onAll={setAll}
        onMatching={(verb) => void actOnMatching({ verb, q: forVerb(q, verb) }, () => setAll(false))}
      />
    </>
  );
}

/** Open the form for a new job when the address asks for it. */
function useNewJob(): void {
  const isNew = params.value.get("new") !== null;
  useEffect(() => {
    if (!isNew) return;
    const task = params.value.get("task") ?? "";
    setParams({ new: null, task: null }, { replace: true });
    openDialog(<Enqueue task={task} />);
  }, [isNew]);
}

function Lede({ counts, filtered }: { counts: JobCount; filtered: boolean }) {
  const of = (...states: (keyof StateCounts)[]) => {
    const found = states.map((state) => counts.by_state[state] ?? { count: 0, capped: false });
    return formatCount({ count: found.reduce((sum, each) => sum + each.count, 0), capped: found.some((each) => each.capped) });
  };
  const values = {
    running: <>{of("running")}</>,
    waiting: <>{of("ready", "blocked", "scheduled")}</>,
    dead: <>{of("dead")}</>,
  };
  return <>{rich(filtered ? "jobs.lede.filtered" : "jobs.lede", values)}</>;
}

function Facets({ q, counts }: { q: string; counts: JobCount | null }) {
  const chosen = valuesOf(q, "state");
  return (
    <nav class="facets" aria-label={t("col.state")}>
      {STATES.map((state) => {
        const isOn = chosen.length === 1 && chosen[0] === state;
        return (
          <a href={to("jobs", { q: withValue(q, "state", isOn ? null : state) })} data-s={state} aria-current={isOn ? "true" : undefined}>
            <Icon name={`s-${state}`} />
            {t(`state.${state}`)} <b>{counts ? formatCount(counts.by_state[state] ?? 0) : ""}</b>
          </a>
        );
      })}
    </nav>
  );
}

function Nothing({ q }: { q: string }) {
  if (!q) return <Empty title={t("jobs.none")} command="durio enqueue TASK '{}'">{t("jobs.none.what")}</Empty>;
  return (
    <Empty
      title={t("jobs.no_match")}
      action={
        <a class="btn sm" href={to("jobs")}>
          {t("query.clear")}
        </a>
      }
    >
      {t("jobs.no_match.what")}
    </Empty>
  );
}

function totalOf(counts: JobCount | null, states: string[]): { count: number; capped: boolean } | null {
  if (!counts) return null;
  if (states.length === 0) return counts;
  const found = STATES.filter((state) => states.includes(state)).map((state) => counts.by_state[state]);
  return {
    count: found.reduce((sum, each) => sum + (each?.count ?? 0), 0),
    capped: found.some((each) => each?.capped ?? false),
  };
}

/** Of all that match, a verb takes those that it applies to. */
function forVerb(q: string, verb: JobVerb): string {
  if (valuesOf(q, "state").length > 0) return q;
  const states = { retry: "dead", discard: "dead", run_now: "scheduled", cancel: "scheduled,blocked,ready,running" };
  return `${q} state:${states[verb]}`.trim();
}

/** Which plans run, which failed? */
import type { Plan } from "../data/schema";
import { useList } from "../data/use";
import { formatCount } from "../format";
import { Button } from "../parts/actions";
import { Ago, Head, Name, Num, StateMark } from "../parts/basics";
import { Bar } from "../parts/bits";
import { Icon } from "../parts/Icon";
import { useRows } from "../parts/rows";
import { Empty, Problem, Skeleton } from "../parts/states";
import { navigate, params, to, toOne } from "../router";
import { known, rich, t } from "../text";

const STATES = ["running", "failing", "failed", "done", "cancelled"] as const;

export function Plans() {
  const state = params.value.get("state") ?? "";
  const list = useList<Plan>("plans", { state }, { topics: ["plans"], id: (plan) => plan.id });
  const plans = list.items ?? [];
  const rows = useRows(plans, { id: (plan) => plan.id, reset: state, onOpen: (plan) => navigate(toOne("plans", plan.id)), keys: { n: list.showFresh } });
  return (
    <>
      <Head title={t("nav.plans")} lede={list.items && ledeOf(plans)} />
      <div class="tabs">
        <a href={to("plans")} aria-current={state ? undefined : "true"}>
          {t("tasks.all")}
        </a>
        {STATES.map((each) => (
          <a href={to("plans", { state: each })} aria-current={state === each ? "true" : undefined}>
            {t(`plan.state.${each}`)}
          </a>
        ))}
        {list.fresh && (
          <button type="button" class="end" onClick={list.showFresh}>
            <Icon name="up" />
            {t("list.fresh", { count: list.fresh })}
          </button>
        )}
      </div>
      {list.error && <Problem error={list.error} retry={list.reload} />}
      {list.isSlow && <Skeleton />}
      {list.items && plans.length === 0 && (
        <Empty title={t("plans.none")} command="durio plans ls">
          {t("plans.none.what")}
        </Empty>
      )}
      {plans.length > 0 && (
        <div class="scroll">
          <table class="tbl">
            <thead>
              <tr>
                <th>{t("col.state")}</th>
                <th>{t("plans.one")}</th>
                <th>{t("plans.progress")}</th>
                <th class="n">{t("plans.done")}</th>
                <th class="n">{t("kpi.running")}</th>
                <th class="n">{t("kpi.waiting")}</th>
                <th class="n">{t("kpi.dead")}</th>
                <th class="n">{t("facts.made")}</th>
              </tr>
            </thead>
            <tbody>
              {plans.map((plan, i) => (
                <Row key={plan.id} plan={plan} isAt={rows.at === i} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {list.hasMore && (
        <div class="fin">
          <Button onClick={list.more} disabled={list.isMore}>
            {t("list.more")}
          </Button>
        </div>
      )}
    </>
  );
}

function Row({ plan, isAt }: { plan: Plan; isAt: boolean }) {
  const counts = plan.counts ?? { total: plan.jobs, done: 0, running: 0, waiting: 0, dead: 0, cancelled: 0 };
  const share = (n: number) => (counts.total > 0 ? n / counts.total : 0);
  return (
    <tr
      data-row
      class={isAt ? "at" : undefined}
      onClick={(event) => {
        if (!(event.target as Element).closest("a")) navigate(toOne("plans", plan.id));
      }}
    >
      <td>
        <PlanState state={plan.state} />
      </td>
      <td class="cut">
        <a class="t" href={toOne("plans", plan.id)}>
          <Name text={plan.name ?? plan.id} />
        </a>{" "}
        {plan.name && <span class="args">{plan.id.slice(0, 13)}</span>}
      </td>
      <td class="qb">
        <Bar
          parts={[
            { state: "done", share: share(counts.done) },
            { state: "dead", share: share(counts.dead) },
            { state: "running", share: share(counts.running) },
          ]}
        />
      </td>
      <td class="n nw">
        {plan.counts && formatCount(counts.done)}
        <span class="q3"> {t("kpi.of", { n: counts.total })}</span>
      </td>
      <td class="n">
        <Num value={counts.running} />
      </td>
      <td class="n">
        <Num value={counts.waiting} />
      </td>
      <td class="n">
        <Num value={counts.dead} />
      </td>
      <td class="n q2 nw">
        <Ago at={plan.created_at} />
      </td>
    </tr>
  );
}

/** A plan's state, with the sign of the state of jobs that is nearest. */
export function PlanState({ state: given, big }: { state: string | null; big?: boolean }) {
  const state = given ?? "damaged";
  return <StateMark state={lookOf(state)} big={big ?? false} word={known(`plan.state.${state}`, state)} />;
}

export function lookOf(state: string | null): string {
  if (state === null || state === "failed" || state === "failing" || state === "damaged") return "dead";
  if (state === "cancelling") return "cancelled";
  return state;
}

function ledeOf(plans: readonly Plan[]) {
  const running = plans.filter((each) => each.state === "running").length;
  const failed = plans.filter((each) => lookOf(each.state) === "dead").length;
  return rich(failed > 0 ? "plans.lede.failed" : "plans.lede", { n: running, running: <>{formatCount(running)}</>, failed: <>{formatCount(failed)}</> });
}

/** How far is a plan, what failed, what waits? */
import { change } from "../data/act";
import { part } from "../data/client";
import type { PlanCounts, PlanDetail } from "../data/schema";
import { useData } from "../data/use";
import { formatCount } from "../format";
import { Act, Copy } from "../parts/actions";
import { Ago, Name } from "../parts/basics";
import { Bar, Fact } from "../parts/bits";
import { openConfirm } from "../parts/Confirm";
import { Icon } from "../parts/Icon";
import { Problem, Skeleton } from "../parts/states";
import { to, toOne } from "../router";
import { useCrumb } from "../shell/title";
import { rich, t } from "../text";
import { PlanState } from "./Plans";
import { Graph } from "./plans/Graph";

export function Plan({ name: id }: { name: string }) {
  const path = `plans/${part(id)}`;
  const { data: plan, error, isSlow, reload } = useData<PlanDetail>(path, {}, { topics: [`plan:${id}`] });
  useCrumb(plan ? (plan.name ?? plan.id.slice(0, 13)) : "");
  if (!plan && error) return <Problem error={error} retry={reload} />;
  if (!plan) return isSlow ? <Skeleton /> : null;
  const counts = countsOf(plan);
  const share = (n: number) => (counts.total > 0 ? n / counts.total : 0);
  const retry = () => void change("POST", `${path}/retry`, {}, t("plan.retrying")).then((done) => done && reload());
  const { failure } = plan;
  return (
    <>
      <div class="head">
        <div class="grow">
          <div class="jh">
            <h1>
              <Name text={plan.name ?? t("plans.one")} />
            </h1>
            <PlanState state={plan.state} big />
          </div>
          <p class="lede">{ledeOf(plan)}</p>
          <div class="meta">
            <span class="mono q2">
              {plan.id}
              <Copy text={plan.id} label={t("act.copy_id")} />
            </span>
          </div>
        </div>
        <div class="btns">
          <Act verb="retry_plan" icon="retry" refused={plan.actions["retry"]} onClick={retry}>
            {t("plan.retry", { n: counts.dead })}
          </Act>
          <Act verb="cancel_plan" kind="risk" icon="cancel" refused={plan.actions["cancel"]} onClick={() => cancel(path, plan, reload)}>
            {t("plan.cancel")}
          </Act>
        </div>
      </div>
      <div class="planbar">
        <Bar
          parts={[
            { state: "done", share: share(counts.done) },
            { state: "dead", share: share(counts.dead) },
            { state: "running", share: share(counts.running) },
            { state: "cancelled", share: share(counts.cancelled) },
          ]}
        />
      </div>
      {failure && (
        <section class="why" data-s="dead">
          <div>
            <h2>
              <Icon name="s-dead" />
              <Name text={`${failure.type.slice(failure.type.lastIndexOf(".") + 1)}: ${failure.text}`} />
            </h2>
          </div>
          <div class="btns">
            {failure.job && (
              <a class="btn" href={toOne("jobs", failure.job)}>
                {t("plan.failed_job")}
              </a>
            )}
          </div>
        </section>
      )}
      {plan.layout.nodes.length > 0 && <Graph layout={plan.layout} plan={plan.id} />}
      <div class="sec">
        <dl class="dl plan-facts">
          <Fact name={t("facts.made")}>
            <Ago at={plan.created_at} />
          </Fact>
          <Fact name={t("plan.ended")}>{plan.ended_at && <Ago at={plan.ended_at} />}</Fact>
          <Fact name={t("nav.jobs")}>
            <a class="a" href={to("jobs", { q: `plan:${plan.id}` })}>
              {t("plan.jobs", { n: counts.total })}
            </a>
          </Fact>
          <Fact name={t("kpi.waiting")}>{formatCount(counts.waiting)}</Fact>
          <Fact name={t("plan.cancelled")}>{formatCount(counts.cancelled)}</Fact>
          <Fact name={t("plan.gone")}>{counts.gone > 0 && formatCount(counts.gone)}</Fact>
          <Fact name={t("plan.resumed")}>{plan.resumed > 0 && t("plan.resumed.times", { n: plan.resumed })}</Fact>
        </dl>
      </div>
    </>
  );
}

const NONE: PlanCounts = { total: 0, done: 0, running: 0, waiting: 0, dead: 0, cancelled: 0, gone: 0 };

function countsOf(plan: PlanDetail): PlanCounts {
  return plan.counts ?? { ...NONE, total: plan.jobs };
}

function ledeOf(plan: PlanDetail) {
  const counts = countsOf(plan);
  const ended = plan.ended_at;
  return (
    <>
      {rich("plan.lede", { done: <>{formatCount(counts.done)}</>, n: counts.total })}{" "}
      {counts.dead > 0 ? rich("plan.lede.dead", { n: counts.dead }) : ended ? "" : t("plan.lede.well")}
    </>
  );
}

function cancel(path: string, plan: PlanDetail, reload: () => void): void {
  openConfirm({
    title: t("plan.cancel.title"),
    children: <p>{t("plan.cancel.what", { n: countsOf(plan).waiting + countsOf(plan).running })}</p>,
    ask: { label: t("reason.label"), hint: t("reason.hint") },
    yes: t("plan.cancel"),
    risk: true,
    onYes: (reason) => void change("POST", `${path}/cancel`, reason ? { reason } : {}, t("plan.cancelling")).then((done) => done && reload()),
  });
}

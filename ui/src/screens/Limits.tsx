/** What is held back, by which rule? */
import type { Breaker, Limit } from "../data/schema";
import { usePages } from "../data/pages";
import { formatCount } from "../format";
import { Head } from "../parts/basics";
import { More } from "../parts/More";
import { Empty, Problem, Skeleton } from "../parts/states";
import { rich, t } from "../text";
import { Breakers } from "./limits/Breakers";
import { LimitRows } from "./limits/LimitRows";

export function Limits() {
  const limits = usePages<Limit>("limits", {}, ["limits"]);
  const breakers = usePages<Breaker>("breakers", {}, ["limits"]);
  const all = limits.items ?? [];
  const open = breakers.items ?? [];
  const error = limits.error ?? breakers.error;
  const isEmpty = limits.items !== null && breakers.items !== null && all.length + open.length === 0;
  return (
    <>
      <Head title={t("nav.limits")} lede={limits.items && breakers.items && ledeOf(all, open)} />
      {error && <Problem error={error} retry={limits.reload} />}
      {(limits.isSlow || breakers.isSlow) && <Skeleton />}
      {isEmpty && (
        <Empty title={t("limits.none")} command="durio limits set mail 100/m">
          {t("limits.none.what")}
        </Empty>
      )}
      {open.length > 0 && <Breakers breakers={open} reload={breakers.reload} />}
      <More list={breakers} />
      {all.length > 0 && <LimitRows limits={all} reload={limits.reload} />}
      <More list={limits} />
    </>
  );
}

function ledeOf(limits: readonly Limit[], breakers: readonly Breaker[]) {
  const shut = breakers.filter((each) => each.state !== "closed" && each.state !== "forced_closed");
  const waiting = limits.reduce((sum, each) => sum + (each.waiting ?? 0), 0);
  const fullest = limits.reduce<Limit | null>((most, each) => ((each.waiting ?? 0) > (most?.waiting ?? 0) ? each : most), null);
  return (
    <>
      {shut.length > 0 ? rich("limits.lede.open", { n: shut.length, name: shut[0]?.name ?? "" }) : breakers.length > 0 && t("limits.lede.closed")}{" "}
      {fullest && waiting > 0 ? rich("limits.lede.waiting", { count: <>{formatCount(waiting)}</>, name: fullest.name }) : t("limits.lede.free")}
    </>
  );
}

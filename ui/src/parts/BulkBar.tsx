/** What can be done with the selected jobs, or with all that match. */
import { applies, type JobVerb, VERBS } from "../data/jobs";
import type { Job } from "../data/schema";
import { useKeys } from "../keys";
import { t } from "../text";
import { Act } from "./actions";
import { isState } from "./basics";
import { actOnChosen } from "./Confirm";
import { Icon, type Shape } from "./Icon";
import type { Rows } from "./rows";

const LOOK: Record<JobVerb, { icon: Shape; key: string }> = {
  retry: { icon: "retry", key: "r" },
  run_now: { icon: "bolt", key: "b" },
  cancel: { icon: "cancel", key: "c" },
  discard: { icon: "x", key: "d" },
};

interface BulkBarProps {
  rows: Rows<Job>;
  onDone: () => void;
  /** How many match in all, as text; what to do with them. */
  matching?: string;
  onMatching?: (verb: JobVerb) => void;
  /** The states that match may have; none: any. */
  states?: readonly string[];
  isAll: boolean;
  onAll: (isAll: boolean) => void;
}

export function BulkBar({ rows, onDone, matching, onMatching, states = [], isAll, onAll }: BulkBarProps) {
  const { chosen, current } = rows;
  const subjects = chosen.length > 0 ? chosen : current ? [current] : [];
  const clear = () => {
    rows.clear();
    onAll(false);
  };
  const act = (verb: JobVerb) => {
    if (isAll) return onMatching?.(verb);
    const fit = subjects.filter((job) => applies(verb, job.state));
    if (fit.length > 0) {
      actOnChosen(verb, fit, () => {
        clear();
        onDone();
      });
    }
  };
  useKeys(Object.fromEntries(VERBS.map((verb) => [LOOK[verb].key, () => act(verb)])));
  if (chosen.length === 0 && !isAll) return null;

  const mayMatch = (verb: JobVerb) => states.length === 0 || states.some((state) => isState(state) && applies(verb, state));
  const verbs = VERBS.filter((verb) => (isAll ? mayMatch(verb) : chosen.some((job) => applies(verb, job.state))));
  return (
    <div class="bulk" role="toolbar" aria-label={t("bulk.label")}>
      <b>{isAll ? t("bulk.all_chosen", { count: matching ?? "" }) : t("bulk.chosen", { n: chosen.length })}</b>
      {matching && !isAll && (
        <button type="button" class="btn bare sm" onClick={() => onAll(true)}>
          <span class="a">{t("bulk.all", { count: matching })}</span>
        </button>
      )}
      <i class="bar1" />
      {verbs.map((verb, i) => {
        const fit = chosen.filter((job) => applies(verb, job.state)).length;
        const isPart = !isAll && fit < chosen.length;
        const kind = verb === "discard" || verb === "cancel" ? "risk" : i === 0 ? "pri" : undefined;
        return (
          <Act verb={verb} kind={kind} small icon={LOOK[verb].icon} keys={LOOK[verb].key} onClick={() => act(verb)}>
            {isPart ? t(`act.${verb}.some`, { n: fit }) : t(`act.${verb}`)}
          </Act>
        );
      })}
      <button type="button" class="btn bare sq sm" aria-label={t("bulk.clear")} data-tip={t("bulk.clear")} onClick={clear}>
        <Icon name="x" />
      </button>
    </div>
  );
}

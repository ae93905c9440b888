/** Why the job is where it is, and what to do about it. */
import type { ComponentChildren } from "preact";

import type { Explanation, Gate, JobDetail } from "../../data/schema";
import { Name } from "../../parts/basics";
import { Copy } from "../../parts/actions";
import { Icon, type Shape } from "../../parts/Icon";
import { Command } from "../../parts/states";
import { t } from "../../text";
import { visible } from "../../names";

const LOOKS = new Map([
  ["dead", "dead"],
  ["blocked", "blocked"],
  ["scheduled", "scheduled"],
  ["ready", "ready"],
  ["cancelled", "off"],
]);

interface WhyProps {
  job: JobDetail;
  why: Explanation | null;
  children: ComponentChildren;
}

/** The panel under the head: one sentence, its evidence, the action. */
export function Why({ job, why, children }: WhyProps) {
  const look = LOOKS.get(job.state);
  if (!look || !why) return null;
  const reasons = why.reasons ?? [];
  const [first, ...rest] = reasons;
  const sentence = why.sentence || first?.text;
  if (!sentence) return null;
  const evidence = why.evidence?.length ? why.evidence : rest.slice(0, 2).map((each) => each.text);
  const cure = first?.unblock;
  // For these the page has a button of its own.
  const hasButton = job.state === "dead" || job.state === "scheduled";
  const command = hasButton ? null : reasons.find((each) => each.command)?.command;
  return (
    <section class="why" data-s={look} aria-label={t("why.title")}>
      <div>
        <h2>
          <Icon name={`s-${job.state}` as Shape} />
          <Name text={sentence} />
        </h2>
        {(evidence.length > 0 || cure) && (
          <p>
            {evidence.map((each) => (
              <>
                <Name text={each} />{" "}
              </>
            ))}
            {cure && <b>{visible(cure)}</b>}
          </p>
        )}
        {command && <Command text={command} />}
      </div>
      <div class="btns">{children}</div>
    </section>
  );
}

/** Every gate between a waiting job and a slot. */
export function Gates({ job, why }: { job: JobDetail; why: Explanation | null }) {
  const gates = gatesOf(job, why);
  if (gates.length === 0) return null;
  const command = `durio why ${job.id}`;
  return (
    <>
      <div class="ch lh">
        <h2>{t("gates.title")}</h2>
        <span class="q3">{t("gates.what")}</span>
        <span class="end">
          <Copy text={command} label={t("act.copy_command")}>
            <code>{`durio why ${job.id.slice(0, 8)}`}</code>
          </Copy>
        </span>
      </div>
      <ul class="gates">
        {gates.map((gate) => (
          <li data-s={gate.open === false ? "blocked" : undefined} class={gate.open === null ? "skipd" : undefined}>
            <Icon name={gate.open === false ? "s-blocked" : gate.open ? "check" : "dots"} />
            <span>
              <Name text={gate.name} />
            </span>
            <p>
              <span class="vh">{t(gate.open === false ? "gates.closed" : gate.open ? "gates.open" : "gates.unknown")}: </span>
              <Name text={gate.text} />
            </p>
            <span>
              {gate.href && (
                <a class="btn sm" href={gate.href}>
                  {t("act.open")}
                </a>
              )}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function gatesOf(job: JobDetail, why: Explanation | null): Gate[] {
  const given = why?.gates?.length ? why.gates : (job.gates ?? []);
  if (given.length > 0) return given;
  const reasons = why?.reasons ?? [];
  if (reasons.length < 2) return [];
  return reasons.map((each) => ({ name: each.code.replaceAll("_", " "), text: each.text, open: each.is_blocking ? false : null }));
}

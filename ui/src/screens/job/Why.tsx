/** Why the job is where it is, and what to do about it. */
import type { ComponentChildren } from "preact";

import type { Explanation, JobDetail } from "../../data/schema";
import { Copy } from "../../parts/actions";
import { Icon, type Shape } from "../../parts/Icon";
import { Prose } from "../../parts/Prose";
import { Command } from "../../parts/states";
import { to, toOne } from "../../router";
import { type Key, t } from "../../text";
import { visible } from "../../names";

const LOOKS = new Map([
  ["dead", "dead"],
  ["blocked", "blocked"],
  ["scheduled", "scheduled"],
  ["ready", "ready"],
  ["cancelled", "off"],
]);

/** Where one can act on a reason, by its code. */
function placeOf(job: JobDetail, code: string): { text: Key; href: string } | null {
  if (/^(limit|rate|fair)_/.test(code)) return { text: "why.limit", href: "limits" };
  if (code.startsWith("breaker_")) return { text: "why.breaker", href: "limits" };
  if (code.startsWith("queue_")) return { text: "why.queue", href: to("queues", { open: job.queue }) };
  if (code.startsWith("task_") || code === "needs_other_release") return { text: "why.task", href: to("tasks", { open: job.task }) };
  if (code.startsWith("worker") || code === "no_worker" || code === "in_line") return { text: "why.workers", href: "workers" };
  if (code.startsWith("plan_") || code === "blocked_by_jobs") return job.plan && { text: "why.plan", href: toOne("plans", job.plan.id) };
  return null;
}

interface WhyProps {
  job: JobDetail;
  why: Explanation | null;
  children: ComponentChildren;
}

/** The panel under the head: one sentence, its evidence, the action. */
export function Why({ job, why, children }: WhyProps) {
  const look = LOOKS.get(job.state);
  if (!look || !why) return null;
  const { reasons, sentence } = why;
  const [first, ...rest] = reasons;
  if (!sentence) return null;
  const evidence = rest.slice(0, 2).map((each) => each.text);
  const cure = first?.unblock;
  const place = first ? placeOf(job, first.code) : null;
  // For these the page has a button of its own.
  const hasButton = job.state === "dead" || job.state === "scheduled";
  const command = hasButton ? null : reasons.find((each) => each.command)?.command;
  return (
    <section class="why" data-s={look} aria-label={t("why.title")}>
      <div>
        <h2>
          <Icon name={`s-${job.state}` as Shape} />
          <Prose text={sentence} isHeadline />
        </h2>
        {(evidence.length > 0 || cure) && (
          <p>
            {evidence.map((each) => (
              <>
                <Prose text={each} />{" "}
              </>
            ))}
            {cure && <b>{visible(cure)}</b>}
          </p>
        )}
        {command && <Command text={command} />}
      </div>
      <div class="btns">
        {children}
        {place && (
          <a class="btn" href={place.href}>
            {t(place.text)}
          </a>
        )}
      </div>
    </section>
  );
}

/** Everything that stands between a waiting job and a slot. */
export function Gates({ job, why }: { job: JobDetail; why: Explanation | null }) {
  const reasons = why?.reasons ?? [];
  if (reasons.length < 2) return null;
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
        {reasons.map((reason) => (
          <li data-s={reason.is_blocking ? "blocked" : undefined} class={reason.is_blocking ? undefined : "skipd"}>
            <Icon name={reason.is_blocking ? "s-blocked" : "info"} />
            <span>{visible(reason.code.replaceAll("_", " "))}</span>
            <p>
              <span class="vh">{t(reason.is_blocking ? "gates.closed" : "gates.unknown")}: </span>
              <Prose text={reason.text} />
              {reason.unblock && <span class="q3"> {visible(reason.unblock)}</span>}
            </p>
            <span>{reason.command && <Copy text={reason.command} label={t("act.copy_command")} />}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** What is known about the job: arguments, result, facts, lineage. */
import type { ComponentChildren } from "preact";

import { me } from "../../data/session";
import type { JobDetail } from "../../data/schema";
import { formatBytes, formatDuration, secondsOf } from "../../format";
import { readJson } from "../../json";
import { Copy } from "../../parts/actions";
import { Ago, Name, StateMark, TaskName } from "../../parts/basics";
import { Icon } from "../../parts/Icon";
import { Arguments, Json } from "../../parts/args";
import { to, toOne } from "../../router";
import { known, t } from "../../text";
import { piecesOf } from "./Life";

export function Aside({ job, action }: { job: JobDetail; action: ComponentChildren }) {
  const size = (job.args_json?.length ?? 0) + (job.kwargs_json?.length ?? 0);
  const hasMeta = !isEmpty(job.meta_json);
  return (
    <aside>
      <section>
        <div class="ch">
          <h2>{t("args.title")}</h2>
          {!job.masked && size > 0 && <span class="q3">{formatBytes(size)}</span>}
          <span class="end">{action}</span>
        </div>
        {job.masked ? <Masked /> : <Arguments args={job.args_json} kwargs={job.kwargs_json} />}
      </section>
      {!job.masked && job.result_json !== null && (
        <section>
          <div class="ch">
            <h2>{t("job.result")}</h2>
            <span class="end">
              <Copy text={job.result_json} label={t("act.copy")} />
            </span>
          </div>
          <Json text={job.result_json} />
        </section>
      )}
      {!job.masked && hasMeta && job.meta_json && (
        <section>
          <div class="ch">
            <h2>{t("job.meta")}</h2>
          </div>
          <Json text={job.meta_json} />
        </section>
      )}
      <Facts job={job} />
      <Lineage job={job} />
    </aside>
  );
}

function Masked() {
  return (
    <p class="note">
      <Icon name="lock" />
      <span>{t("job.masked")}</span>
    </p>
  );
}

function Facts({ job }: { job: JobDetail }) {
  const pieces = piecesOf(job, secondsOf(job.finished_at) ?? Date.now() / 1000);
  const sum = (kind: "wait" | "try") => pieces.filter((each) => each.kind === kind).reduce((all, each) => all + each.to - each.from, 0);
  const ran = sum("try");
  const waited = sum("wait");
  const lines: [string, ComponentChildren][] = [
    [t("facts.made"), <Ago at={job.created_at} />],
    [t("facts.waited"), waited > 0 && job.attempts.length > 0 ? formatDuration(waited) : null],
    [t("facts.ran"), ran > 0 ? t("facts.ran.in", { time: formatDuration(ran), n: job.attempts.length }) : null],
    [t("facts.attempts"), job.max_attempts ? t("facts.attempts.of", { n: job.attempt, most: job.max_attempts }) : null],
    [t("facts.reason"), job.reason && known(`reason.${job.reason}`, job.reason)],
    [t("facts.key"), job.key && <KeyText text={job.key} />],
    [t("facts.kept"), job.result_until && <Ago at={job.result_until} />],
    [t("facts.replaced"), job.replaced_by && <a class="a" href={toOne("plans", job.replaced_by)}>{job.replaced_by.slice(0, 13)}</a>],
    [t("facts.expires"), job.expires_at && <Ago at={job.expires_at} />],
    [t("facts.version"), job.version && <Name text={job.version} />],
    [t("facts.worker"), job.worker && <a class="a" href={to("workers", { open: job.worker })}><Name text={job.worker} /></a>],
    ...linksOf(job),
  ];
  return (
    <section>
      <div class="ch">
        <h2>{t("facts.title")}</h2>
      </div>
      <dl class="dl">
        {lines.map(([name, value]) =>
          value ? (
            <>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </>
          ) : null,
        )}
      </dl>
    </section>
  );
}

function KeyText({ text }: { text: string }) {
  return (
    <>
      <code>
        <Name text={text} />
      </code>{" "}
      <Copy text={text} label={t("act.copy")} />
    </>
  );
}

/** Links to logs and traces that the operator configured; `{id}` and others are filled in. */
function linksOf(job: JobDetail): [string, ComponentChildren][] {
  const values = new Map([["id", job.id], ["task", job.task], ["queue", job.queue], ["worker", job.worker ?? ""]]);
  return Object.entries(me.value?.links ?? {}).flatMap(([name, template]) => {
    const url = template.replace(/\{(\w+)\}/g, (_, key: string) => encodeURIComponent(values.get(key) ?? ""));
    if (!/^https?:\/\//.test(url)) return [];
    const link = (
      <a class="a" href={url} target="_blank" rel="noopener noreferrer">
        {t("act.open")}
      </a>
    );
    return [[name, link] as [string, ComponentChildren]];
  });
}

function Lineage({ job }: { job: JobDetail }) {
  if (!job.plan && !job.schedule && job.parents.length === 0 && job.children.length === 0) return null;
  return (
    <section>
      <div class="ch">
        <h2>{t("lineage.title")}</h2>
      </div>
      <ul class="tree">
        {job.schedule && (
          <li>
            <Icon name="schedules" />
            {t("lineage.schedule")}{" "}
            <a class="a" href={to("schedules", { open: job.schedule.name })}>
              <Name text={job.schedule.name} />
            </a>
            {job.schedule.due_at && (
              <span class="q3">
                {t("lineage.tick")} <Ago at={job.schedule.due_at} />
              </span>
            )}
          </li>
        )}
        {job.plan && (
          <li>
            <Icon name="plans" />
            {t("lineage.plan")}{" "}
            <a class="a" href={toOne("plans", job.plan.id)}>
              <Name text={job.plan.name ?? job.plan.id.slice(0, 13)} />
            </a>
          </li>
        )}
        {job.parents.map((id) => (
          <Relative id={id} />
        ))}
        <li class="l1 me2">
          <StateMark state={job.state} word=" " />
          <TaskName name={job.task} />
          <span class="q3">{t("lineage.this")}</span>
        </li>
        {job.children.map((id) => (
          <Relative id={id} isChild />
        ))}
      </ul>
    </section>
  );
}

function Relative({ id, isChild }: { id: string; isChild?: boolean }) {
  return (
    <li class={isChild ? "l2" : "l1"}>
      <Icon name="jobs" />
      <a class="a mono" href={toOne("jobs", id)}>
        {id.slice(0, 13)}
      </a>
      <span class="q3">{t(isChild ? "lineage.child" : "lineage.parent")}</span>
    </li>
  );
}

function isEmpty(text: string | null): boolean {
  const node = readJson(text);
  return !node || (node.kind === "object" && node.entries.length === 0) || (node.kind === "literal" && node.text === "null");
}

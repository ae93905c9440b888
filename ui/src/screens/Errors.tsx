/** What fails, since when, in which version? */
import { serverNow } from "../data/client";
import type { ErrorGroup } from "../data/schema";
import { usePages } from "../data/pages";
import { formatCount } from "../format";
import { visible } from "../names";
import { Ago, Head, Name, Num, Tag } from "../parts/basics";
import { Duo } from "../parts/bits";
import { More } from "../parts/More";
import { opened, setOpen, toggleOpen } from "../parts/open";
import { useRows } from "../parts/rows";
import { Empty, Problem, Skeleton } from "../parts/states";
import { params, to } from "../router";
import { rich, t } from "../text";
import { Group } from "./errors/Group";

export function Errors() {
  const muted = params.value.get("muted") === "1";
  const task = params.value.get("task") ?? "";
  const list = usePages<ErrorGroup>("errors", { muted: muted || null, task }, ["errors"]);
  const { items: data, error, isSlow, reload } = list;
  const groups = (data ?? []).filter((each) => (each.muted !== null) === muted);
  const rows = useRows(groups, { id: (group) => group.fingerprint, onOpen: (group) => toggleOpen(group.fingerprint) });
  const chosen = opened();
  return (
    <>
      <Head title={t("nav.errors")} lede={data && ledeOf(groups)} />
      <div class="tabs">
        <a href={to("errors", { task })} aria-current={muted ? undefined : "true"}>
          {t("errors.open")}
        </a>
        <a href={to("errors", { task, muted: "1" })} aria-current={muted ? "true" : undefined}>
          {t("errors.muted")}
        </a>
        {task && (
          <a class="end" href={to("errors", { muted: muted ? "1" : null })}>
            {t("errors.of_task", { task })} ×
          </a>
        )}
      </div>
      {error && !data && <Problem error={error} retry={reload} />}
      {isSlow && <Skeleton />}
      {data && groups.length === 0 && !chosen && (
        <Empty title={t(muted ? "errors.none_muted" : "errors.none")}>{t(muted ? "errors.none_muted.what" : "errors.none.what")}</Empty>
      )}
      <Duo
        label={t("errors.group")}
        onClose={() => setOpen(null)}
        side={chosen && <Group key={chosen} fingerprint={chosen} reload={reload} />}
        list={
          groups.length > 0 && (
            <>
              <div class="scroll">
                <table class="tbl errs">
                  <thead>
                    <tr>
                      <th>{t("col.group")}</th>
                      <td />
                      <th class="wide-only">{t("errors.versions")}</th>
                      <th class="wide-only n">{t("errors.first.col")}</th>
                      <th class="n">{t("col.attempts")}</th>
                      <th class="n">{t("kpi.dead")}</th>
                      <th class="n">{t("col.last")}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {groups.map((group, i) => (
                      <Row key={group.fingerprint} group={group} isAt={rows.at === i} isOpen={group.fingerprint === chosen} />
                    ))}
                  </tbody>
                </table>
              </div>
              <More list={list} />
            </>
          )
        }
      />
    </>
  );
}

function Row({ group, isAt, isOpen }: { group: ErrorGroup; isAt: boolean; isOpen: boolean }) {
  const tasks = group.tasks.slice(0, 3).map((each) => visible(each.split(".").at(-1) ?? each));
  return (
    <tr
      data-row
      class={isAt || isOpen ? "at" : undefined}
      aria-selected={isOpen}
      onClick={(event) => {
        if (!(event.target as Element).closest("a")) toggleOpen(group.fingerprint);
      }}
    >
      <td class="cut">
        <a class="grp2" href={to("errors", { ...Object.fromEntries(params.value), open: group.fingerprint })}>
          <span class="cut">
            <b>
              <Name text={group.type.slice(group.type.lastIndexOf(".") + 1)} />
            </b>{" "}
            <span class="q2">
              <Name text={group.text} />
            </span>
          </span>
          <small class="cut">
            {tasks.join(", ")}
            {group.tasks.length > 3 && ` ${t("more.n", { n: group.tasks.length - 3 })}`}
          </small>
        </a>
      </td>
      <td class="nw">{group.muted ? <Tag state="off">{t("errors.is_muted")}</Tag> : isNew(group) && <Tag state="dead">{t("errors.new")}</Tag>}</td>
      <td class="wide-only q2 cut2">{group.versions.length > 0 && <Name text={group.versions.slice(-2).join(", ")} />}</td>
      <td class="wide-only n q2 nw">
        <Ago at={group.first_seen} />
      </td>
      <td class="n">
        <Num value={group.count} />
      </td>
      <td class="n">
        <Num value={group.dead} />
      </td>
      <td class="n q2 nw">
        <Ago at={group.last_seen} />
      </td>
    </tr>
  );
}

const NEW_MS = 24 * 3600 * 1000;

/** First seen in the last 24 h. */
function isNew(group: ErrorGroup): boolean {
  return group.first_seen !== null && serverNow() - Date.parse(group.first_seen) < NEW_MS;
}

function ledeOf(groups: readonly ErrorGroup[]) {
  const all = groups.reduce((sum, each) => sum + each.count, 0);
  const worst = groups.reduce<ErrorGroup | null>((most, each) => (each.count > (most?.count ?? 0) ? each : most), null);
  const fresh = groups.filter(isNew).length;
  if (!worst || all === 0) return t("errors.lede.none");
  return (
    <>
      {rich("errors.lede", { n: groups.length, all: <>{formatCount(all)}</>, type: worst.type.slice(worst.type.lastIndexOf(".") + 1), count: <>{formatCount(worst.count)}</> })}{" "}
      {fresh > 0 && rich("errors.lede.new", { n: fresh })}
    </>
  );
}

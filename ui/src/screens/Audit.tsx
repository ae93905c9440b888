/** Who changed what, when, from where? */
import { useState } from "preact/hooks";

import type { AuditLine } from "../data/schema";
import { useList } from "../data/use";
import { formatCount, formatTime } from "../format";
import { Button } from "../parts/actions";
import { Ago, Head, Name } from "../parts/basics";
import { By } from "../parts/By";
import { Fact } from "../parts/bits";
import { Icon } from "../parts/Icon";
import { Empty, Problem, Skeleton } from "../parts/states";
import { params, setParams, toOne } from "../router";
import { rich, t } from "../text";

export function Audit() {
  const who = params.value.get("who") ?? "";
  const verb = params.value.get("verb") ?? "";
  const list = useList<AuditLine>("audit", { who, verb }, { topics: ["overview"], id: idOf });
  const lines = list.items ?? [];
  const [open, setOpen] = useState<string | null>(null);
  return (
    <>
      <Head title={t("nav.audit")} lede={list.items && ledeOf(lines)} />
      <form
        class="qrow"
        onSubmit={(event) => {
          event.preventDefault();
          const data = new FormData(event.currentTarget);
          setParams({ who: String(data.get("who") ?? "").trim() || null, verb: String(data.get("verb") ?? "").trim() || null });
        }}
      >
        <input type="text" name="who" key={`who${who}`} defaultValue={who} aria-label={t("audit.who")} placeholder={t("audit.who")} />
        <input type="text" name="verb" key={`verb${verb}`} defaultValue={verb} aria-label={t("audit.verb")} placeholder={t("audit.verb.hint")} />
        <button type="submit" class="btn">
          <Icon name="search" />
          {t("audit.filter")}
        </button>
      </form>
      {list.error && <Problem error={list.error} retry={list.reload} />}
      {list.isSlow && <Skeleton />}
      {list.items && lines.length === 0 && !list.error && (
        <Empty title={t(who || verb ? "audit.no_match" : "audit.none")} {...(who || verb ? {} : { command: "durio audit" })}>
          {t("audit.none.what")}
        </Empty>
      )}
      {lines.length > 0 && (
        <div class="scroll">
          <table class="tbl">
            <thead>
              <tr>
                <th>{t("audit.when")}</th>
                <th>{t("audit.who")}</th>
                <th>{t("audit.verb")}</th>
                <th>{t("audit.target")}</th>
                <th class="n">{t("audit.count")}</th>
                <th>{t("audit.address")}</th>
                <td />
              </tr>
            </thead>
            <tbody>
              {lines.map((line) => (
                <Row key={idOf(line)} line={line} isOpen={open === idOf(line)} onOpen={() => setOpen(open === idOf(line) ? null : idOf(line))} />
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

function Row({ line, isOpen, onOpen }: { line: AuditLine; isOpen: boolean; onOpen: () => void }) {
  const label = t(isOpen ? "audit.less" : "audit.more");
  return (
    <>
      <tr class={isOpen ? "open" : undefined}>
        <td class="nw q2">
          <Ago at={line.at} />
        </td>
        <td class="nw">
          <b class="t">
            <By text={line.by} />
          </b>
        </td>
        <td class="nw mono">
          <Name text={line.verb} />
        </td>
        <td class="cut">
          <Target text={line.target} />
        </td>
        <td class="n">{line.count > 0 && formatCount(line.count)}</td>
        <td class="q2 nw">{line.address && <Name text={line.address} />}</td>
        <td class="n">
          <button type="button" class="btn bare sq sm" aria-expanded={isOpen} aria-label={label} data-tip={label} onClick={onOpen}>
            <Icon name={isOpen ? "fold" : "dots"} />
          </button>
        </td>
      </tr>
      {isOpen && (
        <tr class="more">
          <td colSpan={7}>
            <dl class="dl pad">
              <Fact name={t("audit.at")}>{line.at && formatTime(line.at)}</Fact>
              <Fact name={t("audit.browser")}>{line.browser && <Name text={line.browser} />}</Fact>
              <Fact name={t("audit.address")}>{line.address && <Name text={line.address} />}</Fact>
              <Fact name={t("audit.before")}>{line.before && <code><Name text={line.before} /></code>}</Fact>
              <Fact name={t("audit.after")}>{line.after && <code><Name text={line.after} /></code>}</Fact>
              <Fact name={t("audit.request")}>{line.request_id && <code>{line.request_id}</code>}</Fact>
            </dl>
          </td>
        </tr>
      )}
    </>
  );
}

const JOB = /^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(.*)$/;

/** What was changed; a job is a link. */
function Target({ text }: { text: string }) {
  const found = JOB.exec(text);
  if (!found?.[1]) return <Name text={text} />;
  return (
    <>
      <a class="t mono" href={toOne("jobs", found[1])}>
        {found[1]}
      </a>
      <Name text={found[2] ?? ""} />
    </>
  );
}

function idOf(line: AuditLine): string {
  return `${line.at ?? ""} ${line.by} ${line.verb} ${line.target} ${line.request_id ?? ""}`;
}

function ledeOf(lines: readonly AuditLine[]) {
  const first = lines[0];
  return first ? rich("audit.lede", { time: <Ago at={first.at} />, by: <By text={first.by} /> }) : t("audit.lede.none");
}

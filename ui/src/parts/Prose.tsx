/** A sentence of the server: as a headline it begins with a capital; its times are those of the page, and
 * ids of jobs and plans are links. */
import type { ComponentChildren } from "preact";

import { formatMoment, formatTime } from "../format";
import { visible } from "../names";
import { toOne } from "../router";

const PART =
  /\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?(?:\.\d+)?) ?Z|\b(job|plan) ([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b/g;
const ID_SHOWN = 13;

export function Prose({ text, isHeadline }: { text: string; isHeadline?: boolean }) {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const found of text.matchAll(PART)) {
    const [whole, day, clock, kind = "", id = ""] = found;
    parts.push(plain(text.slice(end, found.index), isHeadline === true && end === 0));
    parts.push(day ? <Moment at={`${day}T${clock}Z`} /> : <Link kind={kind} id={id} />);
    end = found.index + whole.length;
  }
  parts.push(plain(text.slice(end), isHeadline === true && end === 0));
  return <bdi>{parts}</bdi>;
}

function plain(text: string, isFirst: boolean): string {
  return visible(isFirst ? text.slice(0, 1).toUpperCase() + text.slice(1) : text);
}

function Moment({ at }: { at: string }) {
  return (
    <time dateTime={at} data-tip={formatTime(at)}>
      {formatMoment(at)}
    </time>
  );
}

function Link({ kind, id }: { kind: string; id: string }) {
  return (
    <>
      {kind}{" "}
      <a class="a mono" href={toOne(kind === "plan" ? "plans" : "jobs", id)} data-tip={id}>
        {id.slice(0, ID_SHOWN)}
      </a>
    </>
  );
}

/** One line of the audit, as a sentence. */
import type { ComponentChildren } from "preact";

import { formatCount } from "../../format";
import { Name } from "../../parts/basics";
import { By } from "../../parts/By";
import { rich } from "../../text";

interface Line {
  by: string;
  verb: string;
  target: string;
  count: number | null;
  reason?: string | null;
}

/** Return `Mara: queue pause reports (ledger migration)`. */
export function auditText(line: Line): ComponentChildren {
  return (
    <>
      {rich("audit.line", { by: <By text={line.by} />, verb: line.verb.replaceAll(/[._]/g, " "), target: subjectOf(line) })}
      {line.count !== null && line.count > 1 && <> ({formatCount(line.count)})</>}
      {line.reason && (
        <span class="q3">
          : <Name text={line.reason} />
        </span>
      )}
    </>
  );
}

/** The target without the word that the verb ends with: `add user`, `user ann`. */
function subjectOf({ verb, target }: Line): string {
  const last = verb.split(/[ ._]/).at(-1) ?? "";
  return last && target.startsWith(`${last} `) ? target.slice(last.length + 1) : target;
}

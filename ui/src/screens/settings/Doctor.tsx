/** What the doctor finds: what is wrong first, what is well folded. */
import { useState } from "preact/hooks";

import type { Doctor } from "../../data/schema";
import type { Data } from "../../data/use";
import { visible } from "../../names";
import { Button } from "../../parts/actions";
import { Ago, Name, StateMark } from "../../parts/basics";
import { Prose } from "../../parts/Prose";
import { Command, Problem, Skeleton } from "../../parts/states";
import { rich, t } from "../../text";

type Finding = Doctor["findings"][number];

const LOOKS = { error: "dead", warning: "warn", ok: "done" } as const;
const COMMAND = /^(.*?)\b(durio [a-z].*)$/;

export function DoctorPart({ doctor }: { doctor: Data<Doctor> }) {
  const [isAll, setAll] = useState(false);
  const { data, error, reload } = doctor;
  const bad = data?.findings.filter((each) => each.level !== "ok") ?? [];
  const good = data?.findings.filter((each) => each.level === "ok") ?? [];
  return (
    <section class="sec flush first">
      <div class="ch">
        <h2>{t("doctor.title")}</h2>
        {data && (
          <span class="q3">
            {t("doctor.ran")} <Ago at={data.ran_at} />
          </span>
        )}
        <span class="end">
          <Button small icon="retry" onClick={reload}>
            {t("doctor.again")}
          </Button>
        </span>
      </div>
      {error && <Problem error={error} retry={reload} />}
      {!data && !error && <Skeleton rows={3} />}
      <ul class="findings">
        {[...bad].sort((a, b) => Number(b.level === "error") - Number(a.level === "error")).map((each) => (
          <One finding={each} />
        ))}
        {isAll && good.map((each) => <One finding={each} />)}
        {!isAll && good.length > 0 && (
          <li data-s="done">
            <StateMark state="done" word={t("doctor.ok")} />
            <span>
              <button type="button" class="btn bare sm" aria-expanded="false" onClick={() => setAll(true)}>
                {t("doctor.good", { n: good.length })}
              </button>
            </span>
          </li>
        )}
      </ul>
    </section>
  );
}

function One({ finding }: { finding: Finding }) {
  return (
    <li data-s={LOOKS[finding.level]}>
      <StateMark state={LOOKS[finding.level]} word={t(`doctor.${finding.level}`)} />
      <div>
        <b>
          <Prose text={finding.text} />
        </b>
        <small class="q3 mono">{finding.code}</small>
        {finding.fix && <Cure text={finding.fix} />}
      </div>
    </li>
  );
}

/** A cure of one or several lines; a command in it can be copied. */
function Cure({ text }: { text: string }) {
  return (
    <>
      {text.split("\n").map((line) => {
        const found = COMMAND.exec(line);
        if (!found?.[2]) return <p class="q2"><Name text={line} /></p>;
        return (
          <>
            {found[1] && <p class="q2">{visible(found[1].trim())}</p>}
            <Command text={found[2]} />
          </>
        );
      })}
    </>
  );
}

/** The answer of the screen, in a sentence. */
export function doctorLede({ findings }: Doctor) {
  const n = findings.filter((each) => each.level !== "ok").length;
  return n === 0 ? t("doctor.well") : rich("doctor.lede", { n });
}

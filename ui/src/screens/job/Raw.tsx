/** The record as the API gives it. */
import type { JobDetail } from "../../data/schema";
import { Copy } from "../../parts/actions";
import { visibleBlock } from "../../names";
import { t } from "../../text";

export function Raw({ job }: { job: JobDetail }) {
  const text = JSON.stringify(job, null, 2);
  return (
    <div class="raw">
      <div class="row">
        <span class="q3">{t("raw.what")}</span>
        <span class="end">
          <Copy text={text} label={t("act.copy")}>
            {t("act.copy")}
          </Copy>
        </span>
      </div>
      <pre class="trace text" tabIndex={0}>
        {visibleBlock(text)}
      </pre>
    </div>
  );
}

/** What a running job does now: progress, time, worker. */
import { now } from "../../clock";
import type { JobDetail } from "../../data/schema";
import { formatDuration, formatNumber, secondsOf } from "../../format";
import { Name } from "../../parts/basics";
import { to } from "../../router";
import { t } from "../../text";

export function Running({ job }: { job: JobDetail }) {
  const from = secondsOf(job.started_at);
  const ran = from === null ? null : Math.max(0, now.value - from);
  const { progress } = job;
  const part = progress?.total ? Math.min(1, progress.done / progress.total) : null;
  const left = part && part > 0.02 && part < 1 && ran !== null ? (ran / part) * (1 - part) : null;
  return (
    <section class="sec prog-row" aria-label={t("running.title")}>
      {progress && (
        <div class="prog">
          <h2>{t("col.progress")}</h2>
          <p class="big">
            {part === null ? formatNumber(progress.done) : t("running.percent", { n: Math.floor(part * 100) })}
            {progress.total !== null && <small> {t("jobs.progress", { done: progress.done, total: progress.total })}</small>}
          </p>
          {progress.total !== null && <progress value={progress.done} max={progress.total} aria-label={t("col.progress")} />}
          <p class="q2">
            {progress.message && <Name text={progress.message} />}
            {left !== null && <span class="q3"> {t("running.left", { time: formatDuration(Math.round(left)) })}</span>}
          </p>
        </div>
      )}
      <div class="prog">
        <h2>{t("running.for")}</h2>
        <p class="big">{ran === null ? "" : formatDuration(Math.floor(ran))}</p>
        <p class="q2">{t("running.attempt", { n: job.attempt })}</p>
      </div>
      {job.worker && (
        <div class="prog">
          <h2>{t("running.on")}</h2>
          <p class="big2">
            <a class="a" href={to("workers", { open: job.worker })}>
              <Name text={job.worker} />
            </a>
          </p>
        </div>
      )}
    </section>
  );
}

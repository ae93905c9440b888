/** One group of errors, beside the list: where it happens, an example, what to do. */
import { change } from "../../data/act";
import { part } from "../../data/client";
import type { ErrorGroupDetail } from "../../data/schema";
import { useData } from "../../data/use";
import { formatCount } from "../../format";
import { Act, Copy } from "../../parts/actions";
import { Ago, Name, StateMark, TaskName } from "../../parts/basics";
import { By } from "../../parts/By";
import { Fact } from "../../parts/bits";
import { actOnMatching, openConfirm } from "../../parts/Confirm";
import { Problem } from "../../parts/states";
import { Frames } from "../../parts/Traceback";
import { to, toOne } from "../../router";
import { rich, t } from "../../text";

interface GroupProps {
  fingerprint: string;
  reload: () => void;
}

export function Group({ fingerprint, reload }: GroupProps) {
  const path = `errors/${part(fingerprint)}`;
  const { data: group, error, reload: again } = useData<ErrorGroupDetail>(path, {}, { topics: ["errors"], keep: true });
  if (error) return <Problem error={error} />;
  if (!group) return null;
  const done = () => {
    again();
    reload();
  };
  return (
    <>
      <section>
        <h2 class="sh">
          <Name text={group.type.slice(group.type.lastIndexOf(".") + 1)} />
        </h2>
        <p class="q2 m8">
          <Name text={group.text} />
        </p>
        <p class="fp q3 mono">
          {group.fingerprint}
          <Copy text={group.fingerprint} label={t("act.copy_id")} />
        </p>
        {group.muted && (
          <p class="note m8">
            <span>
              {rich("errors.muted_by", { by: <By text={group.muted.by} /> })}
              {group.muted.reason && (
                <>
                  : <Name text={group.muted.reason} />
                </>
              )}
            </span>
          </p>
        )}
        <div class="btns act">
          <Act verb="retry" kind="pri" icon="retry" refused={group.dead === 0 ? t("errors.no_dead") : null} onClick={() => actOnGroup(group, "retry", done)}>
            {t("errors.retry", { count: formatCount(group.dead) })}
          </Act>
          <Act verb="mute_error" icon="mute" onClick={() => mute(path, group, done)}>
            {t(group.muted ? "errors.unmute" : "errors.mute")}
          </Act>
          <Act verb="discard" kind="risk" icon="x" square label={t("act.discard")} refused={group.dead === 0 ? t("errors.no_dead") : null} onClick={() => actOnGroup(group, "discard", done)} />
        </div>
      </section>
      <section>
        <dl class="dl">
          <Fact name={t("col.attempts")}>{formatCount(group.count)}</Fact>
          <Fact name={t("kpi.dead")}>
            <a class="a" href={to("jobs", { q: deadOf(group) })}>
              {formatCount(group.dead)}
            </a>
          </Fact>
          <Fact name={t("errors.first")}>
            <Ago at={group.first_seen} />
          </Fact>
          <Fact name={t("col.last")}>
            <Ago at={group.last_seen} />
          </Fact>
          <Fact name={t("nav.tasks")}>
            {group.tasks.map((task) => (
              <a class="a block" href={to("tasks", { open: task })}>
                <TaskName name={task} />
              </a>
            ))}
          </Fact>
          <Fact name={t("errors.versions")}>{group.versions.length > 0 && <Name text={group.versions.join(", ")} />}</Fact>
          <Fact name={t("errors.hosts")}>{group.hosts.length > 0 && <Name text={group.hosts.join(", ")} />}</Fact>
        </dl>
      </section>
      {group.frames.length > 0 && (
        <section>
          <div class="ch">
            <h2>{t("errors.example")}</h2>
            {group.example_job && (
              <a class="more" href={toOne("jobs", group.example_job)}>
                {t("errors.example.job")}
              </a>
            )}
          </div>
          <div class="trace">
            <Frames frames={group.frames} />
          </div>
        </section>
      )}
      {group.jobs.length > 0 && (
        <section>
          <div class="ch">
            <h2>{t("errors.jobs")}</h2>
          </div>
          <ul class="lines">
            {group.jobs.map((job) => (
              <li>
                <StateMark state={job.state} />
                <a class="t cut" href={toOne("jobs", job.id)}>
                  <TaskName name={job.task} />
                </a>
                <span class="end q3 nw">
                  <Ago at={job.finished_at ?? job.created_at} />
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function deadOf(group: ErrorGroupDetail): string {
  return `state:dead group:${group.fingerprint}`;
}

/** Act on the dead jobs of a group. */
function actOnGroup(group: ErrorGroupDetail, verb: "retry" | "discard", done: () => void): void {
  void actOnMatching({ verb, q: deadOf(group) }, done);
}

function mute(path: string, group: ErrorGroupDetail, done: () => void): void {
  if (group.muted) {
    void change("POST", `${path}/unmute`, {}, t("errors.unmuted.did")).then((answer) => answer && done());
    return;
  }
  openConfirm({
    title: t("errors.mute.title"),
    children: <p>{t("errors.mute.what")}</p>,
    ask: { label: t("reason.label"), hint: t("reason.hint") },
    yes: t("errors.mute"),
    onYes: (reason) => void change("POST", `${path}/mute`, reason ? { reason } : {}, t("errors.muted.did")).then((answer) => answer && done()),
  });
}

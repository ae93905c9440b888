/** Make a schedule or change one; its next ticks are shown before it is saved. */
import { useEffect, useState } from "preact/hooks";

import { change } from "../../data/act";
import { type Page, part, send } from "../../data/client";
import type { ChangedSchedule, NewSchedule, PreviewAnswer, RulePreviewBody } from "../../data/api";
import type { Schedule, Task, Tick } from "../../data/schema";
import { asApiError, useData } from "../../data/use";
import { visible } from "../../names";
import { Button, Choice } from "../../parts/actions";
import { closeDialog, Dialog } from "../../parts/Dialog";
import { JsonField, problemOf } from "../../parts/JsonField";
import { t } from "../../text";
import { NextTicks } from "./Detail";

const PREVIEW_MS = 300;
type Rule = "cron" | "every";

interface FormProps {
  schedule?: Schedule;
  onDone: () => void;
}

export function ScheduleForm({ schedule, onDone }: FormProps) {
  const [name, setName] = useState(schedule?.name ?? "");
  const [task, setTask] = useState(schedule?.task ?? "");
  const [rule, setRule] = useState<Rule>(schedule?.every && !schedule.cron ? "every" : "cron");
  const [cron, setCron] = useState(schedule?.cron ?? "30 2 * * *");
  const [every, setEvery] = useState(String(schedule?.every ?? "5m"));
  const [zone, setZone] = useState(schedule?.tz ?? "UTC");
  const [kwargs, setKwargs] = useState("{}");
  const tasks = useData<Page<Task>>("tasks", { limit: 200 }).data?.items ?? [];
  const wish = rule === "cron" ? { cron, tz: zone } : { every, tz: zone };
  const { ticks, problem } = usePreview(wish);
  const isNew = !schedule;
  const isReady = problem === null && name.trim() !== "" && (!isNew || (task.trim() !== "" && problemOf(kwargs, "object") === null));

  const save = () => {
    closeDialog();
    const done = (answer: unknown) => answer && onDone();
    if (schedule) {
      const body: ChangedSchedule = { version: schedule.version ?? 0, ...wish };
      void change("PATCH", `schedules/${part(schedule.name)}`, body, t("schedules.changed", { name })).then(done);
    } else {
      const body: NewSchedule = { name: name.trim(), task: task.trim(), kwargs_json: kwargs, ...wish };
      void change("POST", "schedules", body, t("schedules.made", { name })).then(done);
    }
  };
  const title = schedule ? t("schedules.edit.title", { name: schedule.name }) : t("schedules.new");
  return (
    <Dialog class="confirm form" label={title} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) save();
        }}
      >
        <div>
          <h2>{title}</h2>
          {isNew && (
            <div class="two">
              <label class="f">
                {t("col.name")}
                <input type="text" required autofocus maxLength={128} value={name} onInput={(event) => setName(event.currentTarget.value)} />
              </label>
              <label class="f">
                {t("col.task")}
                <input type="text" list="stasks" required value={task} onInput={(event) => setTask(event.currentTarget.value)} />
                <datalist id="stasks">
                  {tasks.map((each) => (
                    <option value={each.name} />
                  ))}
                </datalist>
              </label>
            </div>
          )}
          <div>
            <Choice
              label={t("schedules.rule")}
              value={rule}
              options={[
                ["cron", t("schedules.cron")],
                ["every", t("schedules.every")],
              ]}
              onChange={setRule}
            />
          </div>
          <div class="two">
            {rule === "cron" ? (
              <label class="f">
                {t("schedules.cron.text")}
                <input type="text" class="mono" aria-invalid={problem !== null} value={cron} onInput={(event) => setCron(event.currentTarget.value)} />
              </label>
            ) : (
              <label class="f">
                {t("schedules.every.text")}
                <input type="text" class="mono" placeholder="5m" aria-invalid={problem !== null} value={every} onInput={(event) => setEvery(event.currentTarget.value)} />
              </label>
            )}
            <label class="f">
              {t("schedules.zone")}
              <input type="text" placeholder="Europe/Paris" value={zone} onInput={(event) => setZone(event.currentTarget.value)} />
            </label>
          </div>
          {isNew && <JsonField label={t("args.title")} value={kwargs} kind="object" onChange={setKwargs} />}
          {problem === null ? (
            <section aria-live="polite">
              <h3>{t("schedules.preview")}</h3>
              <NextTicks ticks={ticks} />
            </section>
          ) : (
            <p class="note" data-s="dead" role="alert">
              {visible(problem)}
            </p>
          )}
        </div>
        <footer>
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn pri" disabled={!isReady}>
            {t("act.save")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Ask for the next ticks of a rule that is being typed. */
function usePreview(wish: Record<string, string>): { ticks: Tick[]; problem: string | null } {
  const [found, setFound] = useState<{ ticks: Tick[]; problem: string | null }>({ ticks: [], problem: null });
  const key = JSON.stringify(wish);
  useEffect(() => {
    let isOld = false;
    const timer = setTimeout(() => {
      send<PreviewAnswer>("POST", "schedules/preview", { ...wish, n: 5 } satisfies RulePreviewBody).then(
        (answer) => {
          if (!isOld) setFound({ ticks: answer.runs, problem: null });
        },
        (error: unknown) => {
          const { message, cure } = asApiError(error);
          if (!isOld) setFound({ ticks: [], problem: `${message} ${cure}`.trim() });
        },
      );
    }, PREVIEW_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [key]);
  return found;
}

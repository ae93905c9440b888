/** Run the ticks of a past range again. */
import { useState } from "preact/hooks";

import { change } from "../../data/act";
import { type ApiError, part, send } from "../../data/client";
import type { BackfillAnswer } from "../../data/api";
import type { Schedule } from "../../data/schema";
import { asApiError } from "../../data/use";
import { formatNumber } from "../../format";
import { Button } from "../../parts/actions";
import { closeDialog, Dialog } from "../../parts/Dialog";
import { visible } from "../../names";
import { t } from "../../text";

interface BackfillProps {
  schedule: Schedule;
  onDone: () => void;
}

export function BackfillForm({ schedule, onDone }: BackfillProps) {
  const [from, setFrom] = useState("");
  const [until, setUntil] = useState("");
  const [side, setSide] = useState("1");
  const [count, setCount] = useState<number | null>(null);
  const [problem, setProblem] = useState<ApiError | null>(null);
  const path = `schedules/${part(schedule.name)}/backfill`;
  const body = { from: iso(from), to: iso(until), concurrency: Number(side) || 1 };
  const isReady = body.from !== null && body.to !== null;

  const look = async () => {
    try {
      const answer = await send<BackfillAnswer>("POST", path, { ...body, dry_run: true });
      setCount(answer.total);
      setProblem(null);
    } catch (error) {
      setProblem(asApiError(error));
    }
  };
  const field = (value: string, set: (value: string) => void) => ({
    value,
    onInput: (event: { currentTarget: HTMLInputElement }) => {
      set(event.currentTarget.value);
      setCount(null);
    },
  });
  return (
    <Dialog class="confirm" label={t("backfill.title", { name: schedule.name })} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isReady) return;
          if (count === null) {
            void look();
            return;
          }
          closeDialog();
          void change("POST", path, body, t("backfill.did", { name: schedule.name })).then((done) => done && onDone());
        }}
      >
        <div>
          <h2>{t("backfill.title", { name: schedule.name })}</h2>
          <p>{t("backfill.what")}</p>
          <label class="f">
            {t("backfill.from")}
            <input type="datetime-local" required {...field(from, setFrom)} />
          </label>
          <label class="f">
            {t("backfill.to")}
            <input type="datetime-local" required {...field(until, setUntil)} />
          </label>
          <label class="f">
            {t("backfill.side")}
            <input type="text" inputMode="numeric" {...field(side, setSide)} />
          </label>
          {count !== null && <p role="status">{t("backfill.count", { n: count, count: formatNumber(count) })}</p>}
          {problem && (
            <p class="note" data-s="dead" role="alert">
              {visible(`${problem.message} ${problem.cure}`)}
            </p>
          )}
        </div>
        <footer>
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn pri" disabled={!isReady || count === 0}>
            {count === null ? t("backfill.look") : t("backfill.yes", { n: count })}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** The field's time is UTC, as the label says. */
function iso(text: string): string | null {
  const date = new Date(`${text}:00Z`);
  return text && !Number.isNaN(date.getTime()) ? date.toISOString() : null;
}

/** Make a job: a task and its arguments. */
import { useEffect, useState } from "preact/hooks";

import { type ApiError, type Page, send } from "../data/client";
import type { Task } from "../data/schema";
import { asApiError, useData } from "../data/use";
import { closeDialog, Dialog } from "../parts/Dialog";
import { Button } from "../parts/actions";
import { Icon } from "../parts/Icon";
import { ArgsHint, JsonField, problemOf, templateOf } from "../parts/JsonField";
import { toast } from "../parts/toasts";
import { visible } from "../names";
import { navigate, toOne } from "../router";
import { rich, t } from "../text";

interface EnqueueProps {
  task: string;
  /** Arguments to begin with. */
  kwargs?: string;
}

export function Enqueue({ task: first, kwargs: start = "{}" }: EnqueueProps) {
  const [task, setTask] = useState(first);
  const [kwargs, setKwargs] = useState(start);
  const [isTyped, setTyped] = useState(false);
  const [more, setMore] = useState({ queue: "", priority: "", delay: "", key: "" });
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const tasks = useData<Page<Task>>("tasks", { limit: 200 }).data?.items ?? [];
  const chosen = tasks.find((each) => each.name === task);
  const template = chosen ? templateOf(chosen.args_schema_json) : "{}";
  useEffect(() => {
    if (!isTyped) setKwargs(start === "{}" ? template : start);
  }, [template]);
  const isWrong = problemOf(kwargs, "object") !== null || !task.trim();

  const type = (text: string) => {
    setTyped(true);
    setKwargs(text);
  };
  const submit = async () => {
    setBusy(true);
    try {
      const answer = await send<{ id: string; created: boolean }>("POST", "jobs", body(task.trim(), kwargs, more), keyHeader(more.key));
      closeDialog();
      toast(t(answer.created ? "enqueue.done" : "enqueue.same", { task: task.trim() }));
      navigate(toOne("jobs", answer.id));
    } catch (problem) {
      setError(asApiError(problem));
      setBusy(false);
    }
  };
  const field = (name: keyof typeof more) => ({
    value: more[name],
    onInput: (event: { currentTarget: HTMLInputElement }) => setMore({ ...more, [name]: event.currentTarget.value }),
  });

  return (
    <Dialog class="confirm form" label={t("enqueue.title")} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isWrong && !isBusy) void submit();
        }}
      >
        <div>
          <h2>{t("enqueue.title")}</h2>
          <label class="f">
            {t("col.task")}
            <input type="text" list="tasks" required autofocus={!first} autocomplete="off" spellcheck={false} value={task} onInput={(event) => setTask(event.currentTarget.value)} />
            <datalist id="tasks">
              {tasks.map((each) => (
                <option value={each.name}>{each.queue}</option>
              ))}
            </datalist>
          </label>
          <JsonField label={t("args.title")} value={kwargs} kind="object" onChange={type} />
          {chosen && <ArgsHint schema={chosen.args_schema_json} />}
          <details>
            <summary>{t("enqueue.more")}</summary>
            <div class="two">
              <label class="f">
                {t("col.queue")}
                <input type="text" placeholder={chosen?.queue} {...field("queue")} />
              </label>
              <label class="f">
                {t("col.priority")}
                <input type="text" inputMode="numeric" pattern="[0-9]" placeholder={String(chosen?.priority ?? 5)} {...field("priority")} />
              </label>
              <label class="f">
                {t("enqueue.delay")}
                <input type="text" placeholder={t("enqueue.delay.hint")} {...field("delay")} />
              </label>
              <label class="f">
                {t("col.key")}
                <input type="text" maxLength={256} {...field("key")} />
                <small>{t("enqueue.key.hint")}</small>
              </label>
            </div>
          </details>
          {error && (
            <p class="note" data-s="dead" role="alert">
              <Icon name="info" />
              <span>{rich("enqueue.refused", { why: visible(error.message), cure: visible(error.cure) })}</span>
            </p>
          )}
        </div>
        <footer>
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn pri" disabled={isWrong || isBusy}>
            <Icon name="plus" />
            {t("enqueue.yes")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function body(task: string, kwargs: string, more: { queue: string; priority: string; delay: string }): Record<string, unknown> {
  return {
    task,
    kwargs_json: kwargs,
    ...(more.queue ? { queue: more.queue } : {}),
    ...(more.priority ? { priority: Number(more.priority) } : {}),
    ...(more.delay ? { delay: more.delay } : {}),
  };
}

function keyHeader(key: string): Record<string, string> {
  return key ? { "Idempotency-Key": key } : {};
}

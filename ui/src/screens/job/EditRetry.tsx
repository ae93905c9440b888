/** Change the arguments of a job that failed, and try it again with them. */
import { useState } from "preact/hooks";

import type { RetryBody } from "../../data/api";
import type { JobDetail, Task } from "../../data/schema";
import { part } from "../../data/client";
import { actOnJob } from "../../data/jobs";
import { useData } from "../../data/use";
import { pretty, readJson } from "../../json";
import { closeDialog, Dialog } from "../../parts/Dialog";
import { Button } from "../../parts/actions";
import { Icon } from "../../parts/Icon";
import { ArgsHint, JsonField, problemOf } from "../../parts/JsonField";
import { t } from "../../text";

export function EditRetry({ job, onDone }: { job: JobDetail; onDone: () => void }) {
  const before = { args: formatted(job.args_json, "[]"), kwargs: formatted(job.kwargs_json, "{}") };
  const [args, setArgs] = useState(before.args);
  const [kwargs, setKwargs] = useState(before.kwargs);
  const task = useData<Task>(`tasks/${part(job.task)}`).data;
  const hasArgs = before.args !== "[]";
  const isWrong = problemOf(args, "array") !== null || problemOf(kwargs, "object") !== null;

  const submit = async () => {
    closeDialog();
    const body: RetryBody = {
      ...(args === before.args ? {} : { args_json: args }),
      ...(kwargs === before.kwargs ? {} : { kwargs_json: kwargs }),
    };
    if (await actOnJob("retry", job.id, job.task, body)) onDone();
  };
  return (
    <Dialog class="confirm form" label={t("edit.title")} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isWrong) void submit();
        }}
      >
        <div>
          <h2>{t("edit.title")}</h2>
          <p>{t("edit.what")}</p>
          {hasArgs && <JsonField label={t("edit.positional")} value={args} kind="array" onChange={setArgs} />}
          <JsonField label={t("args.title")} value={kwargs} kind="object" onChange={setKwargs} />
          <ArgsHint schema={task?.args_schema_json} />
        </div>
        <footer>
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn pri" disabled={isWrong}>
            <Icon name="retry" />
            {t("edit.yes")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function formatted(text: string | null | undefined, fallback: string): string {
  const node = readJson(text);
  return node ? pretty(node) : (text ?? fallback);
}

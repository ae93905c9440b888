/** A store in which nothing has run: what is there, and the command that makes the first job. */
import { useState } from "preact/hooks";

import type { Page } from "../data/client";
import type { Task } from "../data/schema";
import { useData } from "../data/use";
import { Act, Choice } from "../parts/actions";
import { Head, Name, TaskName } from "../parts/basics";
import { openDialog } from "../parts/Dialog";
import { Icon } from "../parts/Icon";
import { argumentsOf } from "../parts/JsonField";
import { Command } from "../parts/states";
import { rich, t } from "../text";
import { Enqueue } from "./Enqueue";

type Way = "shell" | "python" | "http";

export function Fresh({ workers }: { workers: { live: number; slots: number } }) {
  const [way, setWay] = useState<Way>("shell");
  const tasks = useData<Page<Task>>("tasks", {}, { topics: ["workers"] }).data?.items ?? [];
  const task = tasks[0]?.name ?? "TASK";
  const hasWorker = workers.live > 0;
  return (
    <>
      <Head title={t("fresh.title")} lede={rich("fresh.lede")} />
      <div class="duo bt fresh">
        <ol class="steps">
          <li class={hasWorker ? "ok" : "cur"}>
            <span class="no">{hasWorker ? <Icon name="check" /> : 1}</span>
            <div>
              <h2>{t(hasWorker ? "fresh.worker" : "fresh.no_worker")}</h2>
              <p>{t(hasWorker ? "fresh.worker.what" : "fresh.no_worker.what", { n: workers.live, slots: workers.slots })}</p>
              {!hasWorker && <Command text="durio worker MODULE:APP" />}
            </div>
          </li>
          <li class={hasWorker ? "cur" : undefined}>
            <span class="no">2</span>
            <div>
              <h2>{t("fresh.job")}</h2>
              <p>{t("fresh.job.what")}</p>
              <div class="m8">
                <Choice
                  label={t("fresh.how")}
                  value={way}
                  options={[
                    ["shell", t("fresh.shell")],
                    ["python", "Python"],
                    ["http", "HTTP"],
                  ]}
                  onChange={setWay}
                />
              </div>
              <Command text={commandOf(way, task)} />
            </div>
          </li>
          <li>
            <span class="no">3</span>
            <div>
              <h2>{t("fresh.watch")}</h2>
              <p>{t("fresh.watch.what")}</p>
              <div class="ghost" aria-hidden="true">
                <div class="skel">
                  <i />
                  <i />
                  <i />
                </div>
                <div class="skel">
                  <i />
                  <i />
                  <i />
                </div>
              </div>
            </div>
          </li>
        </ol>
        <aside>
          <section>
            <div class="ch">
              <h2>{t("nav.tasks")}</h2>
              <span class="q3">{t("fresh.tasks")}</span>
            </div>
            {tasks.length === 0 && <p class="q3">{t("fresh.tasks.none")}</p>}
            <ul class="tl">
              {tasks.slice(0, 8).map((each) => (
                <TaskLine task={each} />
              ))}
            </ul>
          </section>
        </aside>
      </div>
    </>
  );
}

function TaskLine({ task }: { task: Task }) {
  const names = argumentsOf(task.args_schema_json).map((each) => each.name);
  return (
    <li>
      <div class="grow cut">
        <b>
          <TaskName name={task.name} />
        </b>{" "}
        <span class="args">({names.join(", ")})</span>
        <small>
          <Name text={task.queue} />
        </small>
      </div>
      <Act verb="enqueue" small icon="plus" onClick={() => openDialog(<Enqueue task={task.name} />)}>
        {t("fresh.enqueue")}
      </Act>
    </li>
  );
}

function commandOf(way: Way, task: string): string {
  if (way === "shell") return `durio enqueue ${task} '{}'`;
  if (way === "python") return `await app.enqueue("${task}")`;
  const url = new URL("admin/jobs", document.baseURI);
  return `curl -X POST ${url.href} -H 'Authorization: Bearer TOKEN' -H 'Content-Type: application/json' -d '{"task": "${task}", "kwargs_json": "{}"}'`;
}

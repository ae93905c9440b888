/** Which tasks are there, who runs them, how do they fare? */
import { part } from "../data/client";
import type { Task, TaskDetail } from "../data/schema";
import { usePages } from "../data/pages";
import { useData } from "../data/use";
import { Act, Copy } from "../parts/actions";
import { Ago, Head, Name, Num, Tag, TaskName } from "../parts/basics";
import { Duo, Fact } from "../parts/bits";
import { openDialog } from "../parts/Dialog";
import { ArgsHint } from "../parts/JsonField";
import { More } from "../parts/More";
import { opened, setOpen, toggleOpen } from "../parts/open";
import { useRows } from "../parts/rows";
import { Empty, Problem, Skeleton } from "../parts/states";
import { quoted } from "../query";
import { params, to, toOne } from "../router";
import { rich, t } from "../text";
import { Enqueue } from "./Enqueue";

export function Tasks() {
  const queue = params.value.get("queue");
  const list = usePages<Task>("tasks", {}, ["workers"]);
  const { items: data, error, isSlow, reload } = list;
  const all = data ?? [];
  const tasks = queue ? all.filter((each) => each.queue === queue) : all;
  const rows = useRows(tasks, { id: (task) => task.name, onOpen: (task) => toggleOpen(task.name) });
  const chosen = opened();
  return (
    <>
      <Head title={t("nav.tasks")} lede={data && ledeOf(tasks)} />
      {queue && (
        <div class="tabs">
          <a href={to("tasks")}>{t("tasks.all")}</a>
          <a href={to("tasks", { queue })} aria-current="true">
            {t("tasks.of_queue", { queue })}
          </a>
        </div>
      )}
      {error && !data && <Problem error={error} retry={reload} />}
      {isSlow && <Skeleton />}
      {data && tasks.length === 0 && (
        <Empty title={t("tasks.none")} command="durio worker MODULE:APP">
          {t("tasks.none.what")}
        </Empty>
      )}
      <Duo
        label={t("col.task")}
        onClose={() => setOpen(null)}
        side={chosen && <Detail key={chosen} name={chosen} />}
        list={
          tasks.length > 0 && (
            <>
              <div class="scroll">
                <table class="tbl">
                  <thead>
                    <tr>
                      <th>{t("col.task")}</th>
                      <th>{t("col.queue")}</th>
                      <th>{t("tasks.held")}</th>
                      <th>{t("tasks.last_error")}</th>
                      <th class="n">{t("tasks.failed")}</th>
                      <th class="n">{t("nav.workers")}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {tasks.map((task, i) => (
                      <Row key={task.name} task={task} isAt={rows.at === i} isOpen={task.name === chosen} />
                    ))}
                  </tbody>
                </table>
              </div>
              <More list={list} />
            </>
          )
        }
      />
    </>
  );
}

function Row({ task, isAt, isOpen }: { task: Task; isAt: boolean; isOpen: boolean }) {
  const at = task.name.lastIndexOf(".");
  return (
    <tr
      data-row
      class={isAt || isOpen ? "at" : undefined}
      aria-selected={isOpen}
      onClick={(event) => {
        if (!(event.target as Element).closest("a")) toggleOpen(task.name);
      }}
    >
      <td>
        <a class="grp2" href={to("tasks", { ...Object.fromEntries(params.value), open: task.name })}>
          <b>
            <Name text={task.name.slice(at + 1)} />
          </b>
          <small>
            <Name text={at < 0 ? "" : task.name.slice(0, at)} />
          </small>
        </a>
      </td>
      <td class="q2">
        <Name text={task.queue} />
      </td>
      <td>
        {task.breaker && (
          <Tag>
            {t("tasks.breaker")} <Name text={task.breaker} />
          </Tag>
        )}{" "}
        {task.limits.slice(0, 2).map((each) => (
          <>
            <Tag>
              <Name text={each} />
            </Tag>{" "}
          </>
        ))}
      </td>
      <td class="cut q2">{task.last_error && <Name text={`${task.last_error.type.split(".").at(-1) ?? ""}: ${task.last_error.text}`} />}</td>
      <td class="n"><Num value={task.failed} /></td>
      <td class="n">{task.workers === 0 ? <Tag state="dead">{t("queue.no_worker")}</Tag> : <Num value={task.workers} />}</td>
    </tr>
  );
}

function Detail({ name }: { name: string }) {
  const { data: task, error } = useData<TaskDetail>(`tasks/${part(name)}`, {}, { topics: ["workers"], keep: true });
  if (error) return <Problem error={error} />;
  if (!task) return null;
  const last = task.last_error;
  return (
    <>
      <section>
        <h2 class="sh">
          <TaskName name={task.name} />
        </h2>
        <p class="q3 mono fp">
          <Name text={task.name} />
          <Copy text={task.name} label={t("act.copy")} />
        </p>
        <div class="btns act">
          <Act verb="enqueue" icon="plus" kind="pri" onClick={() => openDialog(<Enqueue task={task.name} />)}>
            {t("jobs.new")}
          </Act>
          <a class="btn" href={to("jobs", { q: `task:${quoted(task.name)}` })}>
            {t("tasks.jobs")}
          </a>
          <a class="btn" href={to("errors", { task: task.name })}>
            {t("nav.errors")}
          </a>
        </div>
      </section>
      <section>
        <dl class="dl">
          <Fact name={t("col.queue")}>
            <a class="a" href={to("queues", { open: task.queue })}>
              <Name text={task.queue} />
            </a>
          </Fact>
          <Fact name={t("col.priority")}>{task.priority}</Fact>
          <Fact name={t("tasks.retry")}>{task.retry}</Fact>
          <Fact name={t("tasks.timeout")}>{task.timeout}</Fact>
          <Fact name={t("tasks.expires")}>{task.expires}</Fact>
          <Fact name={t("tasks.aliases")}>{task.aliases.length > 0 && <Name text={task.aliases.join(", ")} />}</Fact>
          <Fact name={t("queue.limits")}>{task.limits.length > 0 && <Name text={task.limits.join(", ")} />}</Fact>
          <Fact name={t("tasks.breaker_name")}>
            {task.breaker && (
              <a class="a" href={to("limits")}>
                <Name text={task.breaker} />
              </a>
            )}
          </Fact>
          <Fact name={t("facts.version")}>{task.versions.length > 0 && <Name text={task.versions.join(", ")} />}</Fact>
          <Fact name={t("nav.workers")}>{task.workers === 0 ? t("queue.no_worker") : <Num value={task.workers} />}</Fact>
        </dl>
      </section>
      <section>
        <div class="ch">
          <h2>{t("args.title")}</h2>
        </div>
        {task.args_schema_json ? <ArgsHint schema={task.args_schema_json} /> : <p class="q3">{t("tasks.no_schema")}</p>}
      </section>
      {task.served_by.length > 0 && (
        <section>
          <div class="ch">
            <h2>{t("queue.served_by")}</h2>
          </div>
          <ul class="lines">
            {task.served_by.map((each) => (
              <li>
                <a class="a" href={to("workers", { open: each.name })}>
                  <Name text={each.name} />
                </a>
                <span class="q3">
                  <Name text={each.version} />
                </span>
                <span class="end q3">{t("nav.running", { n: each.running })}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {last && (
        <section>
          <div class="ch">
            <h2>{t("tasks.last_error")}</h2>
            <a class="more" href={last.job ? toOne("jobs", last.job) : to("errors", { open: last.fingerprint })}>
              {t(last.job ? "errors.example.job" : "errors.group.open")}
            </a>
          </div>
          <p>
            <b>
              <Name text={last.type} />
            </b>
          </p>
          <p class="q2">
            <Name text={last.text} /> <Ago at={last.at} />
          </p>
        </section>
      )}
    </>
  );
}

function ledeOf(tasks: readonly Task[]) {
  const orphans = tasks.filter((each) => each.workers === 0).length;
  return (
    <>
      {rich("tasks.lede", { n: tasks.length })} {orphans > 0 ? rich("tasks.lede.orphans", { n: orphans }) : t("tasks.lede.served")}
    </>
  );
}

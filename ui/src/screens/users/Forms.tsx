/** Make or change a user; make a token and show it once. */
import { useState } from "preact/hooks";

import { change } from "../../data/act";
import { part } from "../../data/client";
import type { Role, User } from "../../data/schema";
import { Button } from "../../parts/actions";
import { closeDialog, Dialog, openDialog } from "../../parts/Dialog";
import { Command } from "../../parts/states";
import { t } from "../../text";

const ROLES: readonly Role[] = ["viewer", "operator", "admin"];
const PURPOSES = ["enqueue", "work", "metrics", "scale"] as const;

interface UserFormProps {
  user?: User;
  onDone: () => void;
}

export function UserForm({ user, onDone }: UserFormProps) {
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [role, setRole] = useState<Role>(user?.role ?? "viewer");
  const [queues, setQueues] = useState((user?.queues ?? []).join(", "));
  const [payloads, setPayloads] = useState(user?.payloads ?? false);
  const title = user ? t("users.edit", { name: user.name }) : t("users.new");
  const isReady = name.trim() !== "" && (user !== undefined || password !== "");
  const save = () => {
    closeDialog();
    const body = { role, payloads, queues: listOf(queues), ...(password ? { password } : {}) };
    const done = (answer: unknown) => answer && onDone();
    if (user) void change("PATCH", `users/${part(user.name)}`, body, t("users.changed", { name })).then(done);
    else void change("POST", "users", { name: name.trim(), ...body }, t("users.made", { name })).then(done);
  };
  return (
    <Dialog class="confirm" label={title} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) save();
        }}
      >
        <div>
          <h2>{title}</h2>
          {!user && (
            <label class="f">
              {t("col.name")}
              <input type="text" required autofocus autocomplete="off" maxLength={128} value={name} onInput={(event) => setName(event.currentTarget.value)} />
            </label>
          )}
          <label class="f">
            {t(user ? "users.new_password" : "users.password")}
            <input type="password" autocomplete="new-password" maxLength={1024} value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
            {user && <small>{t("users.password.keep")}</small>}
          </label>
          <RoleField role={role} onChange={setRole} />
          <label class="f">
            {t("nav.queues")}
            <input type="text" placeholder={t("users.all_queues")} value={queues} onInput={(event) => setQueues(event.currentTarget.value)} />
            <small>{t("users.list.hint")}</small>
          </label>
          <label class="row">
            <input type="checkbox" checked={payloads} onChange={(event) => setPayloads(event.currentTarget.checked)} />
            {t("users.payloads.long")}
          </label>
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

export function TokenForm({ onDone }: { onDone: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("operator");
  const [purposes, setPurposes] = useState<readonly string[]>([]);
  const [tasks, setTasks] = useState("");
  const [queues, setQueues] = useState("");
  const isOpenEnqueue = purposes.includes("enqueue") && tasks.trim() === "";
  const save = async () => {
    closeDialog();
    const body = { name: name.trim(), role, purposes, tasks: listOf(tasks), queues: listOf(queues) };
    const answer = await change<{ token: string }>("POST", "tokens", body, "");
    if (!answer) return;
    onDone();
    openDialog(<Once name={name.trim()} token={answer.token} />);
  };
  return (
    <Dialog class="confirm" label={t("tokens.new")} onClose={closeDialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) void save();
        }}
      >
        <div>
          <h2>{t("tokens.new")}</h2>
          <label class="f">
            {t("col.name")}
            <input type="text" required autofocus autocomplete="off" maxLength={128} value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
          <RoleField role={role} onChange={setRole} />
          <fieldset class="row">
            <legend class="vh">{t("tokens.for")}</legend>
            {PURPOSES.map((each) => (
              <label class="row">
                <input type="checkbox" checked={purposes.includes(each)} onChange={() => setPurposes(purposes.includes(each) ? purposes.filter((one) => one !== each) : [...purposes, each])} />
                {t(`tokens.purpose.${each}`)}
              </label>
            ))}
          </fieldset>
          <label class="f">
            {t("nav.tasks")}
            <input type="text" value={tasks} onInput={(event) => setTasks(event.currentTarget.value)} />
            <small class={isOpenEnqueue ? "bad" : undefined}>{t(isOpenEnqueue ? "tokens.any_task" : "users.list.hint")}</small>
          </label>
          <label class="f">
            {t("nav.queues")}
            <input type="text" placeholder={t("users.all_queues")} value={queues} onInput={(event) => setQueues(event.currentTarget.value)} />
          </label>
        </div>
        <footer>
          <Button onClick={closeDialog}>{t("act.leave")}</Button>
          <button type="submit" class="btn pri" disabled={name.trim() === ""}>
            {t("tokens.create")}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** The only time that the token can be seen. */
function Once({ name, token }: { name: string; token: string }) {
  return (
    <Dialog class="confirm" label={t("tokens.once", { name })} onClose={closeDialog}>
      <div>
        <h2>{t("tokens.once", { name })}</h2>
        <p>{t("tokens.once.what")}</p>
        <Command text={token} />
      </div>
      <footer>
        <Button kind="pri" onClick={closeDialog}>
          {t("tokens.kept")}
        </Button>
      </footer>
    </Dialog>
  );
}

function RoleField({ role, onChange }: { role: Role; onChange: (role: Role) => void }) {
  return (
    <label class="f">
      {t("users.role")}
      <select value={role} onChange={(event) => onChange(ROLES.find((each) => each === event.currentTarget.value) ?? "viewer")}>
        {ROLES.map((each) => (
          <option value={each}>{t(`role.${each}`)}</option>
        ))}
      </select>
      <small>{t(`role.${role}.what`)}</small>
    </label>
  );
}

function listOf(text: string): string[] | null {
  const all = text.split(/[\s,]+/).filter(Boolean);
  return all.length > 0 ? all : null;
}

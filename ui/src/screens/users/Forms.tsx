/** Make or change a user; make a token and show it once. */
import { useState } from "preact/hooks";

import { change } from "../../data/act";
import { part } from "../../data/client";
import type { NewTokenAnswer, NewTokenBody, NewUserBody, UserBody } from "../../data/api";
import type { Role, User } from "../../data/schema";
import { Button } from "../../parts/actions";
import { closeDialog, Dialog, openDialog } from "../../parts/Dialog";
import { Command } from "../../parts/states";
import { t } from "../../text";

const ROLES: readonly Role[] = ["viewer", "operator", "admin"];
const PURPOSES = ["enqueue", "work", "metrics", "scale"] as const;
type Purpose = (typeof PURPOSES)[number];

interface UserFormProps {
  user?: User;
  onDone: () => void;
}

export function UserForm({ user, onDone }: UserFormProps) {
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [role, setRole] = useState<Role>(user?.role ?? "viewer");
  const [queues, setQueues] = useState((user?.queues ?? []).join(", "));
  const [chosen, setPayloads] = useState(user?.payloads ?? null);
  const payloads = chosen ?? role !== "viewer"; // as the role says
  const title = user ? t("users.edit", { name: user.name }) : t("users.new");
  const isReady = name.trim() !== "" && (user !== undefined || password !== "");
  const save = () => {
    closeDialog();
    const done = (answer: unknown) => answer && onDone();
    if (user) {
      void change("PATCH", `users/${part(user.name)}`, changes(user, { password, role, payloads, queues: listOf(queues) }), t("users.changed", { name })).then(done);
      return;
    }
    const body: NewUserBody = { name: name.trim(), password, role, payloads, queues: listOf(queues) };
    void change("POST", "users", body, t("users.made", { name })).then(done);
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

/** Return what differs: what is left out stays as it is. */
function changes(user: User, wish: { password: string; role: Role; payloads: boolean; queues: string[] | null }): UserBody {
  const isOther = (wish.queues ?? []).join() !== (user.queues ?? []).join();
  return {
    ...(wish.password ? { password: wish.password } : {}),
    ...(wish.role === user.role ? {} : { role: wish.role }),
    ...(wish.payloads === user.payloads ? {} : { payloads: wish.payloads }),
    ...(isOther ? { queues: wish.queues } : {}),
  };
}

export function TokenForm({ onDone }: { onDone: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role | "">("");
  const [purposes, setPurposes] = useState<readonly Purpose[]>(["enqueue"]);
  const [expires, setExpires] = useState("90d");
  const [tasks, setTasks] = useState("");
  const [queues, setQueues] = useState("");
  const isOpenEnqueue = purposes.includes("enqueue") && tasks.trim() === "";
  const save = async () => {
    closeDialog();
    const body: NewTokenBody = {
      name: name.trim(),
      role: role || null,
      purposes: [...purposes],
      tasks: listOf(tasks),
      queues: listOf(queues),
      expires: expires.trim() || null,
    };
    const answer = await change<NewTokenAnswer>("POST", "tokens", body, "");
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
          <RoleField role={role} none={t("tokens.no_role")} onChange={setRole} />
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
          <label class="f">
            {t("tokens.ends")}
            <input type="text" placeholder={t("users.never")} value={expires} onInput={(event) => setExpires(event.currentTarget.value)} />
            <small>{t("tokens.ends.hint")}</small>
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

interface RoleFieldProps<T extends Role | ""> {
  role: T;
  /** The words for no role; without them one must be chosen. */
  none?: string;
  onChange: (role: T) => void;
}

function RoleField<T extends Role | "">({ role, none, onChange }: RoleFieldProps<T>) {
  return (
    <label class="f">
      {t("users.role")}
      <select value={role} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {none && <option value="">{none}</option>}
        {ROLES.map((each) => (
          <option value={each}>{t(`role.${each}`)}</option>
        ))}
      </select>
      {role !== "" && <small>{t(`role.${role as Role}.what`)}</small>}
    </label>
  );
}

function listOf(text: string): string[] | null {
  const all = text.split(/[\s,]+/).filter(Boolean);
  return all.length > 0 ? all : null;
}

/** Who may come in: users with a password, tokens for programs. */
import { change } from "../data/act";
import { part } from "../data/client";
import type { Token, User } from "../data/schema";
import { usePages } from "../data/pages";
import { Act } from "../parts/actions";
import { Ago, Head, Name, Tag } from "../parts/basics";
import { openConfirm } from "../parts/Confirm";
import { openDialog } from "../parts/Dialog";
import { More } from "../parts/More";
import { Empty, Problem, Skeleton } from "../parts/states";
import { rich, t } from "../text";
import { TokenForm, UserForm } from "./users/Forms";

export function Users() {
  const users = usePages<User>("users");
  const tokens = usePages<Token>("tokens");
  return (
    <>
      <Head title={t("nav.users")} lede={users.items && tokens.items && rich("users.lede", { users: users.items.length, tokens: tokens.items.length })}>
        <Act verb="change_users" icon="plus" onClick={() => openDialog(<UserForm onDone={users.reload} />)}>
          {t("users.new")}
        </Act>
        <Act verb="change_tokens" icon="key" onClick={() => openDialog(<TokenForm onDone={tokens.reload} />)}>
          {t("tokens.new")}
        </Act>
      </Head>
      <section class="sec flush">
        <div class="ch">
          <h2>{t("users.title")}</h2>
        </div>
        {users.error && <Problem error={users.error} retry={users.reload} />}
        {users.isSlow && <Skeleton rows={3} />}
        {users.items?.length === 0 && (
          <Empty title={t("users.none")} command="durio users add NAME --role admin">
            {t("users.none.what")}
          </Empty>
        )}
        {users.items && users.items.length > 0 && <UserTable users={users.items} reload={users.reload} />}
        <More list={users} />
      </section>
      <section class="sec flush">
        <div class="ch">
          <h2>{t("tokens.title")}</h2>
          <span class="q3">{t("tokens.what")}</span>
        </div>
        {tokens.error && <Problem error={tokens.error} retry={tokens.reload} />}
        {tokens.items?.length === 0 && (
          <Empty title={t("tokens.none")} command="durio tokens create NAME --role operator">
            {t("tokens.none.what")}
          </Empty>
        )}
        {tokens.items && tokens.items.length > 0 && <TokenTable tokens={tokens.items} reload={tokens.reload} />}
        <More list={tokens} />
      </section>
    </>
  );
}

function UserTable({ users, reload }: { users: readonly User[]; reload: () => void }) {
  return (
    <div class="scroll">
      <table class="tbl">
        <thead>
          <tr>
            <th>{t("col.name")}</th>
            <th>{t("users.role")}</th>
            <th>{t("nav.queues")}</th>
            <th>{t("users.payloads")}</th>
            <th class="n">{t("users.last")}</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {users.map((user) => (
            <tr>
              <td>
                <b class="t">
                  <Name text={user.name} />
                </b>
              </td>
              <td>
                <Tag>{t(`role.${user.role}`)}</Tag>
              </td>
              <td class="q2">{user.queues ? <Name text={user.queues.join(", ")} /> : t("users.all_queues")}</td>
              <td class="q2">{t(user.payloads ? "users.sees" : "users.masked")}</td>
              <td class="n q2 nw">{user.last_login_at ? <Ago at={user.last_login_at} /> : t("users.never")}</td>
              <td class="n nw">
                <Act verb="change_users" kind="bare" small icon="edit" onClick={() => openDialog(<UserForm user={user} onDone={reload} />)}>
                  {t("limits.change")}
                </Act>
                <Act verb="change_users" kind="bare" small square icon="x" label={t("users.delete", { name: user.name })} onClick={() => remove(user, reload)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function TokenTable({ tokens, reload }: { tokens: readonly Token[]; reload: () => void }) {
  return (
    <div class="scroll">
      <table class="tbl">
        <thead>
          <tr>
            <th>{t("col.name")}</th>
            <th>{t("users.role")}</th>
            <th>{t("tokens.for")}</th>
            <th>{t("tokens.bound")}</th>
            <th class="n">{t("tokens.ends")}</th>
            <th class="n">{t("tokens.used")}</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {tokens.map((token) => (
            <tr>
              <td>
                <b class="t">
                  <Name text={token.name} />
                </b>{" "}
                <span class="args">{token.id}</span>
              </td>
              <td>
                {token.role && <Tag>{t(`role.${token.role}`)}</Tag>}
              </td>
              <td class="q2">
                <Name text={token.purposes.join(", ")} />
              </td>
              <td class="q2 cut">
                <Name text={[...(token.tasks ?? []), ...(token.queues ?? [])].join(", ") || t("tokens.unbound")} />
              </td>
              <td class="n q2 nw">{token.expires_at ? <Ago at={token.expires_at} /> : t("users.never")}</td>
              <td class="n q2 nw">{token.last_used_at ? <Ago at={token.last_used_at} /> : t("users.never")}</td>
              <td class="n nw">
                <Act verb="change_tokens" kind="risk" small onClick={() => revoke(token, reload)}>
                  {t("tokens.revoke")}
                </Act>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function remove(user: User, reload: () => void): void {
  openConfirm({
    title: t("users.delete.title", { name: user.name }),
    children: <p>{t("users.delete.what")}</p>,
    yes: t("users.delete.yes"),
    risk: true,
    onYes: () => void change("DELETE", `users/${part(user.name)}`, {}, t("users.deleted", { name: user.name })).then((done) => done && reload()),
  });
}

function revoke(token: Token, reload: () => void): void {
  openConfirm({
    title: t("tokens.revoke.title", { name: token.name }),
    children: <p>{t("tokens.revoke.what")}</p>,
    yes: t("tokens.revoke"),
    risk: true,
    onYes: () => void change("DELETE", `tokens/${part(token.id)}`, {}, t("tokens.revoked", { name: token.name })).then((done) => done && reload()),
  });
}

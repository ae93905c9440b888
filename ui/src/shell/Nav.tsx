import type { ComponentChildren } from "preact";

import { nextTheme, theme } from "../data/prefs";
import { me } from "../data/session";
import { formatCount } from "../format";
import { visible } from "../names";
import { Name } from "../parts/basics";
import { Icon, Mark } from "../parts/Icon";
import { route } from "../router";
import { known, t } from "../text";
import { entries, type Entry, hrefOf, isShown, MENU } from "./menu";
import { summary } from "./summary";

const THEME_ICONS = { auto: "auto", light: "sun", dark: "moon" } as const;

export function Nav({ isOpen }: { isOpen: boolean }) {
  const now = me.value;
  return (
    <nav class={isOpen ? "nav open" : "nav"} aria-label={t("nav.main")} id="nav">
      <a class="brand" href=".">
        <Mark />
        <span class="cut">
          <b class="cut">
            <Name text={now?.title || now?.app || "Durio"} />
          </b>
          <small class="cut">{now && known(`store.${now.store.kind}`, now.store.kind)}</small>
        </span>
      </a>
      {now?.badge && <Badge text={now.badge.text} color={now.badge.color} />}
      {MENU.map(({ title, entries: all }) => (
        <div>
          {title && <h2>{t(title)}</h2>}
          <ul>{all.filter(isShown).map((entry) => <Line entry={entry} />)}</ul>
        </div>
      ))}
      {now && <Me name={now.user} role={t(`role.${now.role}`)} canLeave={now.via === "session"} />}
    </nav>
  );
}

/** The bar at the bottom of a phone. */
export function TabBar() {
  return (
    <nav class="tabbar" aria-label={t("nav.quick")}>
      {entries()
        .filter((entry) => entry.isQuick)
        .map((entry) => (
          <a href={hrefOf(entry.screen)} aria-current={current(entry)}>
            <Icon name={entry.icon} />
            {known(`nav.short.${entry.screen}`, known(`nav.${entry.screen}`, entry.screen))}
          </a>
        ))}
    </nav>
  );
}

function Line({ entry }: { entry: Entry }) {
  return (
    <li>
      <a href={hrefOf(entry.screen)} aria-current={current(entry)}>
        <Icon name={entry.icon} />
        {known(`nav.${entry.screen}`, entry.screen)}
        {countOf(entry.screen)}
      </a>
    </li>
  );
}

function countOf(screen: string): ComponentChildren {
  const data = summary.value.data;
  if (!data) return null;
  if (screen === "dead") {
    const dead = data.states.dead;
    return dead && dead.count > 0 ? <span class="ct hot">{formatCount(dead)}</span> : null;
  }
  if (screen !== "jobs") return null;
  const running = data.states.running;
  return running && running.count > 0 ? <span class="ct">{t("nav.running", { n: formatCount(running) })}</span> : null;
}

function current(entry: Entry): "page" | undefined {
  return route.value.screen === entry.screen ? "page" : undefined;
}

/** Which environment this is; the colour is one of the states', by name. */
function Badge({ text, color }: { text: string; color: string }) {
  const states = new Map([["red", "dead"], ["amber", "blocked"], ["orange", "blocked"], ["yellow", "blocked"], ["green", "done"], ["blue", "running"], ["violet", "scheduled"], ["purple", "scheduled"]]);
  return (
    <p class="envbadge" data-s={states.get(color) ?? "off"}>
      <Name text={text} />
    </p>
  );
}

function Me({ name, role, canLeave }: { name: string; role: string; canLeave: boolean }) {
  const label = t("theme.label", { theme: t(`theme.${theme.value}`) });
  return (
    <div class="me">
      <span class="ava" aria-hidden="true">
        {visible(name).slice(0, 2).toUpperCase()}
      </span>
      <span class="grow cut">
        <Name text={name} />
        <small>{role}</small>
      </span>
      <button type="button" class="btn bare sq sm" aria-label={label} data-tip={label} onClick={nextTheme}>
        <Icon name={THEME_ICONS[theme.value]} />
      </button>
      {canLeave && (
        <a class="btn bare sq sm" href="logout" data-server aria-label={t("nav.logout")} data-tip={t("nav.logout")}>
          <Icon name="out" />
        </a>
      )}
    </div>
  );
}

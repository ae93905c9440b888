/** The screens in the order of the navigation. To add one: its line here, its component in
 * `shell/Screen.tsx`. */
import { isAtLeast } from "../data/session";
import type { Role } from "../data/schema";
import type { IconName } from "../parts/icons";
import type { Key } from "../text";

export interface Entry {
  screen: string;
  icon: IconName;
  /** The letter after `g`. */
  key: string;
  needs?: Role;
  /** In the bar at the bottom of a phone. */
  isQuick?: boolean;
}

export const MENU: readonly { title: Key | null; entries: readonly Entry[] }[] = [
  { title: null, entries: [{ screen: "overview", icon: "overview", key: "o", isQuick: true }] },
  {
    title: "nav.work",
    entries: [
      { screen: "jobs", icon: "jobs", key: "j", isQuick: true },
      { screen: "queues", icon: "queues", key: "q", isQuick: true },
      { screen: "tasks", icon: "tasks", key: "t" },
      { screen: "errors", icon: "errors", key: "e", isQuick: true },
      { screen: "dead", icon: "dead", key: "d", isQuick: true },
    ],
  },
  {
    title: "nav.compose",
    entries: [
      { screen: "schedules", icon: "schedules", key: "s" },
      { screen: "plans", icon: "plans", key: "p" },
    ],
  },
  {
    title: "nav.run",
    entries: [
      { screen: "workers", icon: "workers", key: "w" },
      { screen: "limits", icon: "limits", key: "l" },
      { screen: "audit", icon: "audit", key: "a" },
      { screen: "settings", icon: "settings", key: ",", needs: "operator" },
      { screen: "users", icon: "users", key: "u", needs: "admin" },
    ],
  },
];

export function entries(): Entry[] {
  return MENU.flatMap((group) => group.entries).filter(isShown);
}

export function isShown(entry: Entry): boolean {
  return entry.needs === undefined || isAtLeast(entry.needs);
}

/** The address of a screen, relative to the base. */
export function hrefOf(screen: string): string {
  return screen === "overview" ? "." : screen;
}

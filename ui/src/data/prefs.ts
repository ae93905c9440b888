/** What a reader has chosen on this device: theme, zone, single keys. */
import { effect, type Signal, signal } from "@preact/signals";

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
export type Zone = "utc" | "local";

export const theme = kept<Theme>("durio-theme", "auto", THEMES);
export const zone = kept<Zone>("durio-zone", "utc", ["utc", "local"]);
export const singleKeys = kept<"on" | "off">("durio-keys", "on", ["on", "off"]);

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "auto";
}

/** Show the chosen theme, now and after each change. */
export function applyTheme(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "auto") delete root.dataset["theme"];
    else root.dataset["theme"] = theme.value;
  });
}

function kept<T extends string>(key: string, fallback: T, allowed: readonly T[]): Signal<T> {
  const stored = read(key);
  const value = signal<T>(allowed.find((each) => each === stored) ?? fallback);
  let first = true;
  effect(() => {
    const text = value.value;
    if (!first) write(key, text);
    first = false;
  });
  return value;
}

function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // storage is off: the choice lasts as long as the page
  }
}

function write(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The choice lasts as long as the page.
  }
}

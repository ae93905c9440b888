/** Numbers, durations, sizes and times as people read them. */
import { serverNow } from "./data/client";
import { zone } from "./data/prefs";

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const cents = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export function formatNumber(value: number): string {
  return Number.isInteger(value) ? integer.format(value) : cents.format(value);
}

/** Return a count that may be a lower bound: `10,000+`. */
export function formatCount(count: Counted | number | null | undefined): string {
  if (count === null || count === undefined) return "";
  if (typeof count === "number") return integer.format(count);
  return integer.format(count.count) + (count.capped ? "+" : "");
}

export interface Counted {
  count: number;
  capped?: boolean;
}

/** Return `38 ms`, `0.4 s`, `12 s`, `3 m 51 s`, `2 d 19 h`: two units at most. */
export function formatDuration(seconds: number): string {
  const value = Math.max(0, seconds);
  if (value < 0.0005) return "0 s";
  if (value < 0.0995) return `${integer.format(value * 1000)} ms`;
  if (value < 59.95) return `${value < 9.95 ? tenth.format(value) : integer.format(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return pair(Math.floor(whole / 60), "m", whole % 60, "s");
  if (whole < 86_400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "m");
  return pair(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** Return an age in one unit: `4 s`, `12 m`, `3 h`, `9 d`. */
export function formatAge(seconds: number): string {
  const value = Math.max(0, Math.floor(seconds));
  if (value < 60) return `${value} s`;
  if (value < 3600) return `${Math.floor(value / 60)} m`;
  if (value < 86_400) return `${Math.floor(value / 3600)} h`;
  return `${integer.format(Math.floor(value / 86_400))} d`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${integer.format(bytes)} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes / 1000;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? tenth.format(value) : integer.format(value)} ${units[unit] ?? ""}`;
}

/** Return seconds since 1970 of an ISO time; null if there is none. */
export function secondsOf(at: string | null | undefined): number | null {
  if (!at) return null;
  const value = Date.parse(at);
  return Number.isNaN(value) ? null : value / 1000;
}

/** Return a date and time in the zone of the page: `2026-10-22 09:20:41.802 UTC`. */
export function formatTime(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  return `${dateOf(date)} ${clockOf(date, true)} ${zoneName(date)}`;
}

/** Return the time of the day: `09:20:41`. */
export function formatClock(at: string, fraction = false): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? at : clockOf(date, fraction);
}

/** Return a day and a time, short: `Fri 23 Oct 02:30`. */
export function formatDay(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  const day = part(date, { weekday: "short", day: "numeric", month: "short" });
  return `${day} ${part(date, { hour: "2-digit", minute: "2-digit", hour12: false })}`;
}

/** Return a time in a sentence: of today the clock, else the day too. */
export function formatMoment(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  const isToday = dateOf(date) === dateOf(new Date(serverNow()));
  return isToday ? clockOf(date, false) : formatDay(at);
}

export function formatDate(at: string): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? at : dateOf(date);
}

export function zoneName(date = new Date()): string {
  if (zone.value === "utc") return "UTC";
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(date);
  return parts.find((each) => each.type === "timeZoneName")?.value ?? "";
}

function dateOf(date: Date): string {
  const parts = formatter({ year: "numeric", month: "2-digit", day: "2-digit" }).formatToParts(date);
  const value = (type: string) => parts.find((each) => each.type === type)?.value ?? "";
  return `${value("year")}-${value("month")}-${value("day")}`;
}

function clockOf(date: Date, fraction: boolean): string {
  const options: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  return part(date, fraction ? { ...options, fractionalSecondDigits: 3 } : options);
}

function part(date: Date, options: Intl.DateTimeFormatOptions): string {
  return formatter(options).format(date).replaceAll(",", "");
}

const formatters = new Map<string, Intl.DateTimeFormat>();

function formatter(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = zone.value + JSON.stringify(options);
  let found = formatters.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat("en-GB", zone.value === "utc" ? { ...options, timeZone: "UTC" } : options);
    formatters.set(key, found);
  }
  return found;
}

function pair(first: number, unit: string, second: number, next: string): string {
  return second ? `${first} ${unit} ${String(second).padStart(2, "0")} ${next}` : `${first} ${unit}`;
}

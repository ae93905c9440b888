/** One stream for the whole page: what changes on the server, by topic.
 *
 * A hidden tab closes it. When the stream cannot be had, the page polls. A message is a
 * sign to read again; the screens decide what.
 */
import { effect, signal } from "@preact/signals";

import { address, ApiError, get, login, serverNow } from "./client";

export type LiveState = "live" | "paused" | "reconnecting" | "polling";
type Listener = (topic: string) => void;

interface Message {
  topic: string;
}
interface Poll {
  events: Message[];
  since: string | number;
}

const TOPICS_MAX = 16;
const POLL_MS = 5000;
const RETRY_MS = [500, 1000, 2000, 5000, 10_000];
const POLLS_PER_TRY = 12; // then the stream is tried again
const SETTLE_MS = 250; // screens mount and unmount together

/** Everything changed, as far as the page can know. */
export const ALL = "*";

export const state = signal<LiveState>("live");
export const paused = signal(false);
/** When the page last heard of the server, in milliseconds. */
export const heardAt = signal(serverNow());

const listeners = new Map<string, Set<Listener>>();
let source: EventSource | null = null;
let open = "";
let since: string | number = "";
let isPolling = false;
let polls = 0;
let failures = 0;
let retry: ReturnType<typeof setTimeout> | undefined;
let settle: ReturnType<typeof setTimeout> | undefined;

/** Call `listener` when something of a topic changed; returns how to stop. */
export function listen(topics: readonly string[], listener: Listener): () => void {
  for (const topic of topics) {
    const all = listeners.get(topic) ?? new Set();
    all.add(listener);
    listeners.set(topic, all);
  }
  arrange();
  return () => {
    for (const topic of topics) {
      const all = listeners.get(topic);
      all?.delete(listener);
      if (all?.size === 0) listeners.delete(topic);
    }
    arrange();
  };
}

/** Open and close the stream as the tab is shown and hidden, paused and resumed. */
export function startLive(): void {
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && !paused.value) emit(ALL);
    arrange();
  });
  let first = true;
  effect(() => {
    const isPaused = paused.value;
    if (!first && !isPaused) emit(ALL);
    first = false;
    arrange();
  });
}

function arrange(): void {
  clearTimeout(settle);
  settle = setTimeout(connect, SETTLE_MS);
}

function wanted(): string {
  if (paused.value || document.visibilityState !== "visible") return "";
  return [...listeners.keys()].sort().slice(0, TOPICS_MAX).join(",");
}

function connect(): void {
  const topics = wanted();
  if (paused.value) state.value = "paused";
  if (topics === open && topics) return;
  close();
  open = topics;
  if (!topics) return;
  if (isPolling) void poll();
  else stream(topics);
}

function close(): void {
  clearTimeout(retry);
  source?.close();
  source = null;
  open = "";
}

function stream(topics: string): void {
  const mine = new EventSource(new URL(address("stream", { topics }), document.baseURI));
  source = mine;
  mine.onopen = () => {
    state.value = "live";
    failures = 0;
    heard();
  };
  mine.onmessage = (event) => {
    heard();
    emit(topicOf(String(event.data)));
  };
  mine.addEventListener("resync", () => {
    heard();
    emit(ALL);
  });
  mine.addEventListener("bye", () => again(mine));
  mine.onerror = () => {
    if (source !== mine) return;
    if (mine.readyState === EventSource.CLOSED) refused();
    else state.value = "reconnecting"; // the browser tries again, and resumes
  };
}

function again(mine: EventSource): void {
  if (source !== mine) return;
  close();
  state.value = "reconnecting";
  failures += 1;
  const wait = RETRY_MS[Math.min(failures, RETRY_MS.length) - 1] ?? 1000;
  retry = setTimeout(() => {
    emit(ALL);
    connect();
  }, wait);
}

/** The server answers, but not with a stream: a proxy or a host without one. Poll. */
function refused(): void {
  close();
  isPolling = true;
  void poll();
}

async function poll(): Promise<void> {
  const topics = wanted();
  open = topics;
  if (!topics) return;
  polls += 1;
  if (polls % POLLS_PER_TRY === 0) {
    isPolling = false;
    stream(topics);
    return;
  }
  try {
    const found = await get<Poll>("poll", { topics, since });
    since = found.since;
    state.value = "polling";
    heard();
    for (const topic of new Set(found.events.map((each) => each.topic))) emit(topic);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) login();
    if (error instanceof ApiError && error.status === 400) since = "";
    state.value = "reconnecting";
  }
  if (open === topics && isPolling) retry = setTimeout(() => void poll(), POLL_MS);
}

function emit(topic: string): void {
  const called = new Set<Listener>();
  for (const [key, all] of listeners) {
    if (topic === ALL || topic === key) for (const each of all) called.add(each);
  }
  for (const each of called) each(topic);
}

function heard(): void {
  heardAt.value = serverNow();
}

function topicOf(data: string): string {
  try {
    const message = JSON.parse(data) as Partial<Message>;
    return typeof message.topic === "string" ? message.topic : ALL;
  } catch {
    return ALL;
  }
}

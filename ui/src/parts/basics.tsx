/** The small parts that every screen uses: names, times, states, counts. */
import type { ComponentChildren } from "preact";

import { now } from "../clock";
import { STATES, type State } from "../data/schema";
import { type Counted, formatAge, formatClock, formatCount, formatDuration, formatTime, secondsOf } from "../format";
import { visible } from "../names";
import { known, t } from "../text";
import { Icon, type Shape } from "./Icon";

/** A name from outside: hidden characters are written out, its direction stays its own. */
export function Name({ text, class: kind }: { text: string; class?: string }) {
  return <bdi class={kind}>{visible(text)}</bdi>;
}

/** The last part of a task's name, the whole on hover. */
export function TaskName({ name }: { name: string }) {
  const last = name.slice(name.lastIndexOf(".") + 1) || name;
  return last === name ? <Name text={name} /> : <bdi data-tip={visible(name)}>{visible(last)}</bdi>;
}

/** A time that says how long ago it was, or how far ahead; the absolute time on hover. */
export function Ago({ at, bare }: { at: string | null | undefined; bare?: boolean }) {
  const seconds = secondsOf(at);
  if (!at || seconds === null) return null;
  const past = now.value - seconds;
  const text = past >= -1 ? (bare ? formatAge(past) : t("time.ago", { age: formatAge(past) })) : t("time.in", { age: formatDuration(-past) });
  return (
    <time dateTime={at} data-tip={formatTime(at)}>
      {text}
    </time>
  );
}

/** A time of the day; the whole time on hover. */
export function Clock({ at, fraction }: { at: string | null | undefined; fraction?: boolean }) {
  if (!at) return null;
  return (
    <time dateTime={at} data-tip={formatTime(at)}>
      {formatClock(at, fraction)}
    </time>
  );
}

/** How long something has gone on; counts by itself. */
export function Since({ at }: { at: string | null | undefined }) {
  const seconds = secondsOf(at);
  if (!at || seconds === null) return null;
  return (
    <time dateTime={at} data-tip={formatTime(at)}>
      {formatDuration(Math.max(0, Math.floor(now.value - seconds)))}
    </time>
  );
}

export function isState(text: string): text is State {
  return (STATES as readonly string[]).includes(text);
}

/** A state with its shape, its word and its colour. */
export function StateMark({ state, big, word }: { state: string; big?: boolean; word?: string }) {
  const shape: Shape | null = isState(state) ? `s-${state}` : null;
  return (
    <span class={big ? "st big" : "st"} data-s={state}>
      {shape ? <Icon name={shape} /> : <i class="ldot" />}
      <span>{word ?? known(`state.${state}`, state)}</span>
    </span>
  );
}

/** A count in a table: zeros are quiet. */
export function Num({ value }: { value: Counted | number | null | undefined }) {
  const count = typeof value === "object" ? (value?.count ?? 0) : (value ?? 0);
  return <span class={count === 0 ? "q3" : undefined}>{formatCount(value ?? 0)}</span>;
}

export function Tag({ state, children }: { state?: string; children: ComponentChildren }) {
  return (
    <span class="tag" data-s={state}>
      {children}
    </span>
  );
}

/** The head of a screen: title, lede, actions. */
export function Head({ title, lede, children, one }: { title: ComponentChildren; lede?: ComponentChildren; children?: ComponentChildren; one?: boolean }) {
  return (
    <div class={one ? "head one" : "head"}>
      <div class="grow">
        {typeof title === "string" ? <h1>{title}</h1> : title}
        {lede && <p class="lede">{lede}</p>}
      </div>
      {children && <div class="btns">{children}</div>}
    </div>
  );
}

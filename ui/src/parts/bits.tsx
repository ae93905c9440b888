/** Figures, bars, sections: what several screens are laid out with. */
import type { ComponentChildren } from "preact";

import type { State } from "../data/schema";
import { t } from "../text";
import { Icon } from "./Icon";

interface KpiProps {
  name: string;
  value: ComponentChildren;
  unit?: ComponentChildren;
  detail?: ComponentChildren;
  href: string;
  state?: State | undefined;
}

/** One figure of a screen; it opens what it counts. */
export function Kpi({ name, value, unit, detail, href, state }: KpiProps) {
  return (
    <a class="kpi c2" href={href}>
      <span class="k">
        {state && <Icon name={`s-${state}`} state={state} class="c" />}
        {name}
      </span>
      <b>
        {value}
        {unit && <small> {unit}</small>}
      </b>
      <span class="d">{detail}</span>
    </a>
  );
}

interface SectionProps {
  title: string;
  note?: ComponentChildren;
  more?: { text: string; href: string };
  class?: string;
  children: ComponentChildren;
}

export function Section({ title, note, more, class: kind = "", children }: SectionProps) {
  return (
    <section class={kind}>
      <div class="ch">
        <h2>{title}</h2>
        {note && <span class="q3">{note}</span>}
        {more && (
          <a class="more" href={more.href}>
            {more.text}
          </a>
        )}
      </div>
      {children}
    </section>
  );
}

/** Parts of a whole, each in the colour of its state. */
export function Bar({ parts, tip }: { parts: readonly { state: string; share: number }[]; tip?: string }) {
  return (
    <div class="bar" data-tip={tip}>
      {parts.map((each) => each.share > 0 && <i data-s={each.state} style={{ inlineSize: `${Math.max(1, each.share * 100)}%` }} />)}
    </div>
  );
}

export interface Slot {
  state: "running" | "warn" | "dead" | "free";
  tip: string;
  href?: string;
}

const SLOTS_MAX = 300;

/** One square per slot, up to 300. */
export function Slots({ slots, small }: { slots: readonly Slot[]; small?: boolean }) {
  return (
    <div class={small ? "slots sm" : "slots"}>
      {slots.slice(0, SLOTS_MAX).map((slot) => {
        const state = slot.state === "free" ? undefined : slot.state;
        return slot.href ? <a href={slot.href} data-s={state} data-tip={slot.tip} aria-label={slot.tip} /> : <i data-s={state} data-tip={slot.tip} />;
      })}
      {slots.length > SLOTS_MAX && <span class="q3">{t("slots.more", { n: slots.length - SLOTS_MAX })}</span>}
    </div>
  );
}

/** A name and its value, in a list of facts; nothing without a value. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  if (children === null || children === undefined || children === "" || children === false) return null;
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** A list beside what is open of it; below it in a narrow window. */
export function Duo({ list, side, label, onClose }: { list: ComponentChildren; side: ComponentChildren; label: string; onClose: () => void }) {
  if (!side) return <div class="bt">{list}</div>;
  return (
    <div class="duo bt">
      <div>{list}</div>
      <aside class="side" aria-label={label}>
        <button type="button" class="btn bare sq sm close" aria-label={t("act.close")} data-tip={t("act.close")} onClick={onClose}>
          <Icon name="x" />
        </button>
        {side}
      </aside>
    </div>
  );
}

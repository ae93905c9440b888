/** Buttons: refused ones stay visible, with a lock and the reason. */
import type { ComponentChildren } from "preact";

import { refusal, type Verb } from "../data/session";
import { visible } from "../names";
import { t } from "../text";
import { Icon, type Shape } from "./Icon";
import { toast } from "./toasts";

interface ButtonProps {
  icon?: Shape;
  kind?: "pri" | "risk" | "bare" | "risk pri" | undefined;
  small?: boolean;
  /** No word, only the icon: the label says it. */
  square?: boolean;
  label?: string;
  tip?: string;
  keys?: string;
  disabled?: boolean;
  pressed?: boolean;
  children?: ComponentChildren;
  onClick?: (event: MouseEvent) => void;
}

export function Button({ icon, kind, small, square, label, tip, keys, disabled, pressed, children, onClick }: ButtonProps) {
  const classes = ["btn", kind, small && "sm", square && "sq"].filter(Boolean).join(" ");
  return (
    <button
      type="button"
      class={classes}
      aria-label={label}
      aria-pressed={pressed}
      data-tip={tip ?? (square ? label : undefined)}
      disabled={disabled}
      onClick={onClick}
    >
      {icon && <Icon name={icon} />}
      {children}
      {keys && <kbd aria-hidden="true">{keys}</kbd>}
    </button>
  );
}

interface ActProps extends ButtonProps {
  verb: Verb;
  /** Why it cannot be done now, whoever asks; null: it can. */
  refused?: string | null | undefined;
}

/** A button for a verb: when it is refused it says why instead of doing it. */
export function Act({ verb, refused, ...props }: ActProps) {
  const why = refusal(verb) ?? refused ?? null;
  if (why === null) return <Button {...props} />;
  const classes = ["btn", props.kind === "pri" ? null : props.kind, props.small && "sm", props.square && "sq"];
  return (
    <button
      type="button"
      class={classes.filter(Boolean).join(" ")}
      aria-disabled="true"
      aria-label={props.label}
      data-tip={visible(why)}
      onClick={() => toast(why, { state: "off" })}
    >
      <Icon name="lock" />
      {props.children}
    </button>
  );
}

/** A button that copies a text. */
export function Copy({ text, label, children }: { text: string; label: string; children?: ComponentChildren }) {
  const classes = children ? "btn bare sm" : "copy";
  return (
    <button
      type="button"
      class={classes}
      aria-label={children ? undefined : label}
      data-tip={label}
      onClick={() => void copy(text)}
    >
      <Icon name="copy" />
      {children}
    </button>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("toast.copied"));
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "vh";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy"); // plain http has no clipboard
    area.remove();
    toast(t(done ? "toast.copied" : "toast.not_copied"), done ? {} : { state: "dead" });
  }
}

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  options: readonly (readonly [T, ComponentChildren])[];
  onChange: (value: T) => void;
}

/** One of a few, side by side. */
export function Choice<T extends string>({ label, value, options, onChange }: ChoiceProps<T>) {
  return (
    <div class="seg" role="group" aria-label={label}>
      {options.map(([each, text]) => (
        <button type="button" aria-pressed={each === value} onClick={() => onChange(each)}>
          {text}
        </button>
      ))}
    </div>
  );
}

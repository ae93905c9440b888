import { ICONS, type IconName, STATE_ICONS } from "./icons";

const SHAPES = new Map<string, readonly string[]>([
  ...Object.entries(ICONS),
  ...Object.entries(STATE_ICONS).map(([name, paths]) => [`s-${name}`, paths] as const),
]);
const CLASSES = new Map([["!", "solid"], ["~", "knock"], ["*", "bold"]]);

export type Shape = IconName | `s-${keyof typeof STATE_ICONS}`;

interface IconProps {
  name: Shape;
  state?: string;
  class?: string;
}

export function Icon({ name, state, class: extra }: IconProps) {
  return (
    <svg class={`i${extra ? ` ${extra}` : ""}`} viewBox="0 0 16 16" aria-hidden="true" data-s={state}>
      {(SHAPES.get(name) ?? []).map((text) => {
        const kind = CLASSES.get(text[0] ?? "");
        return <path class={kind} d={kind ? text.slice(1) : text} />;
      })}
    </svg>
  );
}

const HUSK =
  "M13.0 0.5L15.2 3.5L18.4 1.7L19.0 5.4L22.8 5.2L21.7 8.8L25.2 10.2L22.7 13.0L25.2 15.8L21.7 17.2L22.8 20.8L19.0 20.6L18.4 24.3L15.2 22.5L13.0 25.5L10.8 22.5L7.6 24.3L7.0 20.6L3.2 20.8L4.3 17.2L0.8 15.8L3.3 13.0L0.8 10.2L4.3 8.8L3.2 5.2L7.0 5.4L7.6 1.7L10.8 3.5z";

/** The mark of Durio. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 26 26" aria-hidden="true">
      <path class="husk" d={HUSK} />
      <path class="seed" d="M9.2 6.8h3.6a6.2 6.2 0 0 1 0 12.4H9.2zm2.7 2.7v7h.9a3.5 3.5 0 0 0 0-7z" />
    </svg>
  );
}

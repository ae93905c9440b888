/** Short answers at the end of the page: what was done, what was refused. */
import { signal } from "@preact/signals";

import type { ApiError } from "../data/client";
import { t } from "../text";
import { visible } from "../names";
import { Icon } from "./Icon";

interface Toast {
  id: number;
  text: string;
  more: string;
  state: string;
}

const SHOWN_MS = 5000;
const PROBLEM_MS = 12_000;
const shown = signal<Toast[]>([]);
let last = 0;

export function toast(text: string, { state = "done", more = "" } = {}): void {
  last += 1;
  const id = last;
  shown.value = [...shown.value.slice(-3), { id, text, more, state }];
  setTimeout(() => drop(id), state === "done" ? SHOWN_MS : PROBLEM_MS);
}

/** Say what the API refused, and its cure. */
export function toastError(error: ApiError): void {
  const text = error.code === "unreachable" ? t("problem.unreachable") : error.message;
  toast(text, { state: "dead", more: error.cure });
}

export function Toasts() {
  return (
    <div class="toasts" role="status">
      {shown.value.map((each) => (
        <div class="toast" key={each.id}>
          <Icon name={iconOf(each.state)} state={each.state} class="c" />
          <span class="grow">
            {visible(each.text)}
            {each.more && <small>{visible(each.more)}</small>}
          </span>
          <button type="button" class="btn bare sq sm" aria-label={t("act.dismiss")} onClick={() => drop(each.id)}>
            <Icon name="x" />
          </button>
        </div>
      ))}
    </div>
  );
}

function iconOf(state: string): "s-done" | "s-dead" | "lock" | "info" {
  if (state === "done") return "s-done";
  if (state === "dead") return "s-dead";
  return state === "off" ? "lock" : "info";
}

function drop(id: number): void {
  shown.value = shown.value.filter((each) => each.id !== id);
}

/** The title of the tab and the last crumb of the header. */
import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { me } from "../data/session";
import { visible } from "../names";
import { route } from "../router";
import { known } from "../text";

/** What of a screen is shown, such as the task of a job; empty for the screen itself. */
export const crumb = signal("");

export function useCrumb(text: string): void {
  useEffect(() => {
    crumb.value = text;
    return () => {
      crumb.value = "";
    };
  }, [text]);
}

export function startTitle(): void {
  effect(() => {
    const { screen } = route.value;
    const parts = [crumb.value, known(`nav.${screen}`, screen), me.value?.title || me.value?.app, "Durio"];
    document.title = parts.filter(Boolean).map((each) => visible(each ?? "")).join(" - ");
  });
}

/** The page's own clock: one tick a second for everything that counts. */
import { signal } from "@preact/signals";

import { serverNow } from "./data/client";

/** Seconds since 1970 by the server's clock. */
export const now = signal(serverNow() / 1000);

export function startClock(): void {
  setInterval(() => {
    if (document.visibilityState === "visible") now.value = serverNow() / 1000;
  }, 1000);
}

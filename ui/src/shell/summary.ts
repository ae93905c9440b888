/** The overview's figures, which the navigation shows too: read once for both. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Overview } from "../data/schema";
import { type Data, useData } from "../data/use";

const none: Data<Overview> = { data: null, error: null, isSlow: false, reload: () => undefined };

export const summary = signal<Data<Overview>>(none);

/** Keep the summary up to date while the page is shown. */
export function useSummary(): void {
  const found = useData<Overview>("overview", {}, { topics: ["overview"] });
  useEffect(() => {
    summary.value = found;
  }, [found.data, found.error, found.isSlow]);
}

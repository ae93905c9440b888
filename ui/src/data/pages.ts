/** Lists that are shown whole: all pages read so far are read again when something changes. */
import { useEffect, useState } from "preact/hooks";

import { type ApiError, get, type Page, type Values } from "./client";
import { AGAIN_MS, asApiError, passes, shownError, SLOW_MS, useTopics } from "./use";

const PER_PAGE = 200;

export interface Pages<T> {
  /** All rows of the pages read so far; null before the first is here. */
  items: T[] | null;
  error: ApiError | null;
  isSlow: boolean;
  hasMore: boolean;
  more: () => void;
  reload: () => void;
}

interface Found<T> {
  key: string;
  items: T[];
  hasMore: boolean;
}

export function usePages<T>(path: string, values: Values = {}, topics: readonly string[] = []): Pages<T> {
  const key = path + JSON.stringify(values);
  const [found, setFound] = useState<Found<T> | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isSlow, setSlow] = useState(false);
  const [wanted, setWanted] = useState({ key, pages: 1 });
  const [turn, setTurn] = useState(0);
  const pages = wanted.key === key ? wanted.pages : 1;
  const reload = () => setTurn((n) => n + 1);

  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => setSlow(true), SLOW_MS);
    let again: ReturnType<typeof setTimeout> | undefined;
    readPages<T>(path, values, pages, abort.signal)
      .then(
        (read) => {
          setError(null);
          setFound({ key, ...read });
        },
        (problem: unknown) => {
          if (abort.signal.aborted) return;
          const failed = asApiError(problem);
          setFound((old) => {
            setError(shownError(failed, old?.key === key));
            return old;
          });
          if (passes(failed)) again = setTimeout(reload, AGAIN_MS);
        },
      )
      .finally(() => {
        clearTimeout(timer);
        setSlow(false);
      });
    return () => {
      clearTimeout(timer);
      clearTimeout(again);
      abort.abort();
    };
  }, [key, pages, turn]);

  useTopics(topics, reload);
  return {
    items: found?.items ?? null, // those of the last values, while these are read
    error,
    isSlow: isSlow && !found,
    hasMore: found?.key === key && found.hasMore,
    more: () => setWanted({ key, pages: pages + 1 }),
    reload,
  };
}

async function readPages<T>(path: string, values: Values, pages: number, signal: AbortSignal): Promise<{ items: T[]; hasMore: boolean }> {
  const items: T[] = [];
  let cursor: string | null = null;
  for (let i = 0; i < pages; i += 1) {
    const page: Page<T> = await get<Page<T>>(path, { limit: PER_PAGE, ...values, cursor }, signal);
    items.push(...page.items);
    cursor = page.cursor;
    if (cursor === null) break;
  }
  return { items, hasMore: cursor !== null };
}

/** Data of the API in a component: read, kept while it is read again, live. */
import { useEffect, useRef, useState } from "preact/hooks";

import { formatCount } from "../format";
import { ApiError, get, login, type Page, type Values } from "./client";
import { listen } from "./live";

export interface Data<T> {
  data: T | null;
  error: ApiError | null;
  /** Nothing to show yet, for longer than 150 ms. */
  isSlow: boolean;
  reload: () => void;
}

export const SLOW_MS = 150;
export const AGAIN_MS = 5000; // after an answer that failed for a reason that passes
const LIVE_MS = 2000; // at most one live read in this time

interface Options {
  /** Topics of the stream; a message reads again. */
  topics?: readonly string[];
  /** Keep the old data while the data of another path is read. */
  keep?: boolean;
}

/** Read one path; null reads nothing. */
export function useData<T>(path: string | null, values: Values = {}, options: Options = {}): Data<T> {
  const key = path === null ? null : path + JSON.stringify(values);
  const [found, setFound] = useState<{ key: string | null; data: T | null; error: ApiError | null }>({
    key: null,
    data: null,
    error: null,
  });
  const [isSlow, setSlow] = useState(false);
  const [turn, setTurn] = useState(0);
  const reload = () => setTurn((n) => n + 1);

  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => setSlow(true), SLOW_MS);
    let again: ReturnType<typeof setTimeout> | undefined;
    const done = (next: { data: T | null; error: ApiError | null }) => {
      clearTimeout(timer);
      setSlow(false);
      if (next.error && passes(next.error)) again = setTimeout(reload, AGAIN_MS);
      setFound((old) => {
        const kept = old.key === key ? old.data : null;
        return { key, error: shownError(next.error, kept !== null), data: next.data ?? kept };
      });
    };
    get<T>(path, values, abort.signal).then(
      (data) => done({ data, error: null }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        done({ data: null, error: asApiError(error) });
      },
    );
    return () => {
      clearTimeout(timer);
      clearTimeout(again);
      abort.abort();
    };
  }, [key, turn]);

  const isOther = found.key !== key;
  // What is not there cannot be watched: its topic would be refused with the whole stream.
  useTopics(isOther || found.data === null ? [] : (options.topics ?? []), reload);
  return {
    data: isOther && !options.keep ? null : found.data,
    error: isOther ? null : found.error,
    isSlow: isSlow && (isOther || found.data === null),
    reload,
  };
}

export interface List<T> {
  items: T[] | null;
  error: ApiError | null;
  isSlow: boolean;
  partial: boolean;
  hasMore: boolean;
  isMore: boolean;
  /** Rows that came since the list was shown, as text; empty: none. */
  fresh: string;
  /** The rows are those of the query before. */
  isOld: boolean;
  more: () => void;
  showFresh: () => void;
  reload: () => void;
}

interface ListOptions<T> {
  topics?: readonly string[];
  id: (item: T) => string;
}

interface Shown<T> {
  key: string;
  items: T[];
  cursor: string | null;
  partial: boolean;
}

/** Read a list page by page. Rows never move by themselves: new ones are counted. */
export function useList<T>(path: string, values: Values, options: ListOptions<T>): List<T> {
  const key = path + JSON.stringify(values);
  const [shown, setShown] = useState<Shown<T> | null>(null);
  const [newest, setNewest] = useState<Page<T> | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isSlow, setSlow] = useState(false);
  const [isMore, setMore] = useState(false);
  const [turn, setTurn] = useState(0);
  const live = useRef(false);
  const current = useRef(key);
  current.current = key;
  const hasRows = useRef(false);
  hasRows.current = shown?.key === key;
  const reload = () => {
    live.current = false;
    setTurn((n) => n + 1);
  };

  useEffect(() => {
    const abort = new AbortController();
    const isLive = live.current;
    live.current = false;
    let again: ReturnType<typeof setTimeout> | undefined;
    const timer = setTimeout(() => setSlow(true), SLOW_MS);
    get<Page<T>>(path, values, abort.signal).then(
      (page) => {
        setError(null);
        setShown((old) => merged(old, page, key, isLive, options.id));
        setNewest(isLive ? page : null);
      },
      (problem: unknown) => {
        if (abort.signal.aborted) return;
        const failed = asApiError(problem);
        setError(shownError(failed, hasRows.current));
        if (passes(failed)) again = setTimeout(reload, AGAIN_MS);
      },
    ).finally(() => {
      clearTimeout(timer);
      setSlow(false);
    });
    return () => {
      clearTimeout(timer);
      clearTimeout(again);
      abort.abort();
    };
  }, [key, turn]);

  useTopics(options.topics ?? [], () => {
    live.current = true;
    setTurn((n) => n + 1);
  });

  const mine = shown?.key === key ? shown : null;
  const known = new Set(mine?.items.map(options.id));
  const fresh = mine && newest ? newest.items.filter((each) => !known.has(options.id(each))).length : 0;
  return {
    items: shown?.items ?? null, // those of the last query, while this one is read
    error,
    isSlow: isSlow && !shown,
    partial: mine?.partial ?? false,
    hasMore: mine?.cursor != null,
    isMore,
    fresh: freshText(fresh, newest),
    isOld: shown !== null && shown.key !== key,
    more: () => {
      if (!mine?.cursor || isMore) return;
      setMore(true);
      const asked = key;
      get<Page<T>>(path, { ...values, cursor: mine.cursor }).then(
        (page) => {
          if (current.current === asked) setShown((old) => (old?.key === asked ? appended(old, page, options.id) : old));
        },
        (problem: unknown) => setError(asApiError(problem)),
      ).finally(() => setMore(false));
    },
    showFresh: () => {
      if (!newest) return;
      setShown({ key, ...newest });
      setNewest(null);
      scrollTo(0, 0);
    },
    reload,
  };
}

/** Call `reload` when one of the topics changed, at most every 2 s. */
export function useTopics(topics: readonly string[], reload: () => void): void {
  const call = useRef(reload);
  call.current = reload;
  const key = topics.join(",");
  useEffect(() => {
    if (!key) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let last = 0;
    const stop = listen(key.split(","), () => {
      if (timer !== undefined) return;
      const wait = Math.max(0, last + LIVE_MS - Date.now());
      timer = setTimeout(() => {
        timer = undefined;
        last = Date.now();
        call.current();
      }, wait);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [key]);
}

/** Return the error of the API; a lost login leaves the page. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) {
    if (error.status === 401) login();
    return error;
  }
  return new ApiError(0, "page", error instanceof Error ? error.message : String(error), "", "");
}

/** Return how many rows are new; when the whole page is, there may be more. */
function freshText<T>(fresh: number, newest: Page<T> | null): string {
  if (fresh === 0 || newest === null) return "";
  return formatCount({ count: fresh, capped: fresh === newest.items.length && newest.cursor !== null });
}

/** Tell whether the same request may work a little later. */
export function passes(error: ApiError): boolean {
  return error.status === 0 ? error.code === "unreachable" : error.status === 429 || error.status >= 500;
}

/** What is shown stays, and the header says that the server is away. */
export function shownError(error: ApiError | null, hasData: boolean): ApiError | null {
  return error && hasData && passes(error) ? null : error;
}

function merged<T>(
  old: Shown<T> | null,
  page: Page<T>,
  key: string,
  isLive: boolean,
  id: (item: T) => string,
): Shown<T> {
  if (!old || old.key !== key || !isLive || old.items.length === 0) return { key, ...page };
  const now = new Map(page.items.map((each) => [id(each), each]));
  return { ...old, items: old.items.map((each) => now.get(id(each)) ?? each) };
}

function appended<T>(old: Shown<T>, page: Page<T>, id: (item: T) => string): Shown<T> {
  const known = new Set(old.items.map(id));
  const items = [...old.items, ...page.items.filter((each) => !known.has(id(each)))];
  return { ...old, items, cursor: page.cursor, partial: page.partial };
}

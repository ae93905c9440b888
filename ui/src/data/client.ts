/** Requests to the admin API, and its errors. */

/** An answer that refuses, as `application/problem+json` says it. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly cure: string;

  constructor(status: number, code: string, title: string, detail: string, cure: string) {
    super(detail || title);
    this.status = status;
    this.code = code;
    this.cure = cure;
  }
}

export interface Page<T> {
  items: T[];
  cursor: string | null;
  partial: boolean;
}

export type Values = Record<string, string | number | boolean | null | undefined>;
type Method = "POST" | "PUT" | "PATCH" | "DELETE";

const TIMEOUT_MS = 20_000;
let skew = 0;

/** Milliseconds since 1970 by the clock of the server, as far as its answers tell. */
export function serverNow(): number {
  return Date.now() + skew;
}

/** Read from the API; the path has no `admin/` in front. */
export async function get<T>(path: string, values: Values = {}, signal?: AbortSignal): Promise<T> {
  return answer<T>(address(path, values), { headers: { Accept: "application/json" } }, signal);
}

/** Change something. The browser adds `Sec-Fetch-Site`, which the server asks for. */
export async function send<T>(
  method: Method,
  path: string,
  body: unknown = {},
  headers: Record<string, string> = {},
): Promise<T> {
  const all = { Accept: "application/json", "Content-Type": "application/json", ...headers };
  return answer<T>(address(path, {}), { method, headers: all, body: JSON.stringify(body) });
}

/** Return the address of an API path, relative to the base. */
export function address(path: string, values: Values): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return `admin/${path}${text ? `?${text}` : ""}`;
}

/** Return a name as one part of a path. */
export function part(name: string): string {
  return encodeURIComponent(name);
}

/** Go to the login page, and come back here after it. */
export function login(): void {
  const url = new URL("login", document.baseURI);
  url.searchParams.set("next", location.pathname + location.search);
  location.assign(url);
}

async function answer<T>(url: string, init: RequestInit, signal?: AbortSignal): Promise<T> {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const both = signal ? AbortSignal.any([signal, timeout]) : timeout;
  let response: Response;
  try {
    response = await fetch(new URL(url, document.baseURI), {
      ...init,
      signal: both,
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "", "", "");
  }
  readClock(response);
  if (!response.ok) throw await problem(response);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

async function problem(response: Response): Promise<ApiError> {
  const fields = new Map<string, unknown>();
  try {
    const body: unknown = await response.json();
    if (body && typeof body === "object") {
      for (const [key, value] of Object.entries(body)) fields.set(key, value);
    }
  } catch {
    // Not from us: a proxy's page. The status says what is known.
  }
  const text = (key: string) => {
    const value = fields.get(key);
    return typeof value === "string" ? value : "";
  };
  const title = text("title") || response.statusText;
  return new ApiError(response.status, text("code"), title, text("detail"), text("cure"));
}

function readClock(response: Response): void {
  const at = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(at)) return;
  // The header has whole seconds: only a difference that is no rounding counts.
  const difference = at + 500 - Date.now();
  skew = Math.abs(difference) > 2000 ? difference : 0;
}

/** Addresses: the path and query below the page's base, kept in the browser's history. */
import { computed, signal } from "@preact/signals";

/** The mount's path, with a slash at its end; the server writes it into `<base href>`. */
export const BASE = new URL(".", document.baseURI).pathname;

export interface Route {
  screen: string;
  /** What follows the screen's name, such as the id of a job. */
  rest: string;
}

// Other addresses of a screen.
const ALIASES = new Map([["", "overview"], ["breakers", "limits"], ["tokens", "users"]]);

const here = signal(read());

export const path = computed(() => here.value.path);
export const params = computed(() => new URLSearchParams(here.value.search));
export const route = computed<Route>(() => {
  const [screen = "", ...rest] = path.value.split("/");
  return { screen: ALIASES.get(screen) ?? screen, rest: rest.map(decode).join("/") };
});

/** Return the address of a page, relative to the base. */
export function to(page: string, values: Record<string, string | null | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value) search.set(key, value);
  const text = search.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return (page || ".") + (text ? `?${text}` : "");
}

/** Return the address of one thing, whose name may hold any character. */
export function toOne(screen: string, name: string): string {
  return `${screen}/${encodeURIComponent(name)}`;
}

export function navigate(href: string, { replace = false } = {}): void {
  const url = new URL(href, document.baseURI);
  const samePath = url.pathname === location.pathname;
  if (replace) history.replaceState(null, "", url);
  else if (url.href !== location.href) history.pushState(null, "", url);
  here.value = read();
  if (!samePath) scrollTo(0, 0);
}

/** Change some of the address's values; null takes one away. */
export function setParams(
  values: Record<string, string | null>,
  options: { replace?: boolean } = {},
): void {
  const all = Object.fromEntries(params.value);
  navigate(to(path.value, { ...all, ...values }), options);
}

/** Follow clicks on links of this page without loading it anew. */
export function followLinks(): void {
  addEventListener("popstate", () => {
    here.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest("a");
    if (!link || !isOurs(link)) return;
    event.preventDefault();
    navigate(link.href);
  });
}

function isOurs(link: HTMLAnchorElement): boolean {
  if (link.target || link.hasAttribute("download") || link.dataset["server"] !== undefined) return false;
  return link.origin === location.origin && link.pathname.startsWith(BASE);
}

function read(): { path: string; search: string } {
  const { pathname, search } = location;
  return { path: pathname.startsWith(BASE) ? pathname.slice(BASE.length) : "", search };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

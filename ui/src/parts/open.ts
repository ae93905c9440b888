/** Which row of a list is open: the address holds it. */
import { params, setParams } from "../router";

export function opened(): string | null {
  return params.value.get("open");
}

export function toggleOpen(name: string): void {
  setParams({ open: opened() === name ? null : name });
}

export function setOpen(name: string | null): void {
  setParams({ open: name }, { replace: true });
}

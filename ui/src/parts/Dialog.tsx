/** What floats over the page and wants an answer first. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { t } from "../text";
import { Icon } from "./Icon";

interface DialogProps {
  label: string;
  class: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ label, class: kind, onClose, children }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = box.current;
    if (!dialog) return undefined;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={kind}
      aria-label={label}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === box.current) box.current?.close();
      }}
    >
      {children}
    </dialog>
  );
}

/** The head of a dialog that is read rather than answered. */
export function DialogHead({ title, onClose }: { title: ComponentChildren; onClose: () => void }) {
  return (
    <header>
      <h2 tabIndex={-1} autofocus>
        {title}
      </h2>
      <button type="button" class="btn bare sq sm" aria-label={t("act.close")} onClick={onClose}>
        <Icon name="x" />
      </button>
    </header>
  );
}

/** The dialog that is open, if any: one at a time. */
export const dialog = signal<ComponentChildren>(null);

export function openDialog(content: ComponentChildren): void {
  dialog.value = content;
}

export function closeDialog(): void {
  dialog.value = null;
}

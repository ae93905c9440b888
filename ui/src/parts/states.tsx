/** What a screen shows when it has nothing to show: loading, empty, failed. */
import type { ComponentChildren } from "preact";

import type { ApiError } from "../data/client";
import { rich, t } from "../text";
import { visible } from "../names";
import { Button, Copy } from "./actions";
import { Icon } from "./Icon";

/** Rows with the geometry of those to come. */
export function Skeleton({ rows = 8 }: { rows?: number }) {
  return (
    <div class="skrows" role="status" aria-label={t("loading")}>
      {Array.from({ length: rows }, () => (
        <div class="skel">
          <i />
          <i />
          <i />
          <i />
        </div>
      ))}
    </div>
  );
}

interface EmptyProps {
  title: string;
  children?: ComponentChildren;
  /** The one command that makes the first row. */
  command?: string;
  action?: ComponentChildren;
}

export function Empty({ title, children, command, action }: EmptyProps) {
  return (
    <div class="empty">
      <div class="none">
        <p>
          <b>{title}</b> {children}
        </p>
        {action}
      </div>
      {command && <Command text={command} />}
    </div>
  );
}

/** A command to paste into a shell. */
export function Command({ text }: { text: string }) {
  return (
    <div class="code">
      <pre tabIndex={0}>{visible(text)}</pre>
      <Copy text={text} label={t("act.copy_command")}>
        {t("act.copy")}
      </Copy>
    </div>
  );
}

/** An answer that refused, with its cure. */
export function Problem({ error, retry }: { error: ApiError; retry?: () => void }) {
  const isAway = error.code === "unreachable";
  return (
    <div class="empty" role="alert">
      <div class="note" data-s={error.status === 403 || error.status === 404 ? "off" : "dead"}>
        <Icon name={error.status === 403 ? "lock" : "info"} />
        <span>
          <b>{isAway ? t("problem.unreachable") : visible(error.message || t("problem.status", { status: error.status }))}</b>{" "}
          {isAway ? t("problem.unreachable_cure") : visible(error.cure)}
        </span>
      </div>
      {retry && (
        <div class="btns m8">
          <Button icon="retry" onClick={retry}>
            {t("act.try_again")}
          </Button>
        </div>
      )}
    </div>
  );
}

/** What a list may not have seen. */
export function Partial() {
  return (
    <div class="note partial">
      <Icon name="search" />
      <span>{rich("list.partial")}</span>
    </div>
  );
}

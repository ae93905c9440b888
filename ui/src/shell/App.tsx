/** The frame around every screen. */
import { useEffect, useRef, useState } from "preact/hooks";

import { paused } from "../data/live";
import { nextTheme } from "../data/prefs";
import { me } from "../data/session";
import { useKeys } from "../keys";
import { BulkRuns } from "../parts/BulkRuns";
import { closeDialog, dialog, openDialog } from "../parts/Dialog";
import { Icon } from "../parts/Icon";
import { Toasts } from "../parts/toasts";
import { visible } from "../names";
import { navigate, path } from "../router";
import { rich, t } from "../text";
import { Keys } from "./Keys";
import { entries, hrefOf } from "./menu";
import { Nav, TabBar } from "./Nav";
import { Palette } from "./Palette";
import { Screen } from "./Screen";
import { useSummary } from "./summary";
import { switchZone, Top } from "./Top";

export function App() {
  const [isNavOpen, setNavOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useSummary();
  useEffect(() => {
    if (!first.current) {
      setNavOpen(false);
      closeDialog();
      main.current?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [path.value]);

  const go = Object.fromEntries(entries().map((entry) => [`g ${entry.key}`, () => navigate(hrefOf(entry.screen))]));
  const find = () => openDialog(<Palette />);
  const keys = () => openDialog(<Keys />);
  useKeys({
    ...go,
    "Ctrl k": find,
    "/": find,
    "?": keys,
    t: nextTheme,
    z: switchZone,
    l: () => {
      paused.value = !paused.value;
    },
    Escape: () => setNavOpen(false),
  }, { isBase: true });

  return (
    <div class="app">
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        {t("nav.skip")}
      </button>
      <Nav isOpen={isNavOpen} />
      {isNavOpen && <button type="button" class="veil" aria-label={t("act.close")} onClick={() => setNavOpen(false)} />}
      <main class="main" ref={main} tabIndex={-1}>
        <Top onMenu={() => setNavOpen(!isNavOpen)} onFind={find} onKeys={keys} />
        <ReadOnly />
        <Screen />
      </main>
      <BulkRuns />
      <TabBar />
      <Toasts />
      {dialog.value}
    </div>
  );
}

function ReadOnly() {
  const reason = me.value?.read_only;
  if (!reason) return null;
  return (
    <div class="note banner" data-s="info" role="note">
      <Icon name="lock" />
      <span>{rich("readonly.banner", { reason: visible(reason) })}</span>
    </div>
  );
}

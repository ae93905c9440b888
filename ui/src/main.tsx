import "./css/app.css";

import { render } from "preact";

import { startClock } from "./clock";
import { startLive } from "./data/live";
import { applyTheme } from "./data/prefs";
import { readMe } from "./data/session";
import { startKeys } from "./keys";
import { startTips } from "./parts/tip";
import { Problem } from "./parts/states";
import { followLinks } from "./router";
import { App } from "./shell/App";
import { startTitle } from "./shell/title";

async function start(): Promise<void> {
  applyTheme();
  const error = await readMe();
  if (error?.status === 401) return; // on the way to the login page
  if (error) {
    render(<Problem error={error} retry={() => location.reload()} />, document.body);
    return;
  }
  followLinks();
  startTitle();
  startClock();
  startKeys();
  render(<App />, document.body);
  startTips();
  startLive();
}

void start();

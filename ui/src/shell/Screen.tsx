/** Which component shows which address. */
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";

import { ApiError } from "../data/client";

import { navigate, route, to } from "../router";
import { Empty, Problem } from "../parts/states";
import { Head } from "../parts/basics";
import { rich, t } from "../text";
import { Audit } from "../screens/Audit";
import { Dead } from "../screens/Dead";
import { Errors } from "../screens/Errors";
import { Job } from "../screens/Job";
import { Jobs } from "../screens/Jobs";
import { Limits } from "../screens/Limits";
import { Overview } from "../screens/Overview";
import { Plan } from "../screens/Plan";
import { Plans } from "../screens/Plans";
import { Queues } from "../screens/Queues";
import { Schedules } from "../screens/Schedules";
import { Settings } from "../screens/Settings";
import { Tasks } from "../screens/Tasks";
import { Users } from "../screens/Users";
import { Workers } from "../screens/Workers";

const LISTS = new Map<string, ComponentType>([
  ["overview", Overview],
  ["jobs", Jobs],
  ["queues", Queues],
  ["tasks", Tasks],
  ["errors", Errors],
  ["dead", Dead],
  ["schedules", Schedules],
  ["plans", Plans],
  ["workers", Workers],
  ["limits", Limits],
  ["audit", Audit],
  ["settings", Settings],
  ["users", Users],
]);
const ONES = new Map<string, ComponentType<{ name: string }>>([
  ["jobs", Job],
  ["plans", Plan],
]);

export function Screen() {
  const { screen, rest } = route.value;
  return (
    <Guarded key={`${screen}/${rest}`}>
      <Chosen />
    </Guarded>
  );
}

/** A screen that fails says so; the frame and the other screens go on. */
function Guarded({ children }: { children: ComponentChildren }) {
  const [error, again] = useErrorBoundary((thrown: unknown) => console.error(thrown));
  if (!error) return <>{children}</>;
  const text = error instanceof Error ? error.message : String(error);
  return <Problem error={new ApiError(0, "page", t("problem.screen"), text, t("problem.screen_cure"))} retry={again} />;
}

function Chosen() {
  const { screen, rest } = route.value;
  const One = rest ? ONES.get(screen) : undefined;
  if (One) return <One key={rest} name={rest} />;
  const All = LISTS.get(screen);
  if (!All) return <NotFound />;
  return rest ? <OpenOne screen={screen} name={rest} /> : <All key={screen} />;
}

/** `queues/mail` is the list of queues with mail open. */
function OpenOne({ screen, name }: { screen: string; name: string }) {
  useEffect(() => navigate(to(screen, { open: name }), { replace: true }), []);
  return null;
}

function NotFound() {
  return (
    <>
      <Head title={t("notfound.title")} lede={rich("notfound.lede")} />
      <Empty
        title={t("notfound.none")}
        action={
          <a class="btn" href=".">
            {t("notfound.back")}
          </a>
        }
      />
    </>
  );
}

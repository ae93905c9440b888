/** Which component shows which address. */
import type { ComponentType } from "preact";

import { route } from "../router";
import { Empty } from "../parts/states";
import { Head } from "../parts/basics";
import { rich, t } from "../text";
import { Dead } from "../screens/Dead";
import { Errors } from "../screens/Errors";
import { Job } from "../screens/Job";
import { Jobs } from "../screens/Jobs";
import { Overview } from "../screens/Overview";
import { Queues } from "../screens/Queues";
import { Tasks } from "../screens/Tasks";
import { Workers } from "../screens/Workers";

const LISTS = new Map<string, ComponentType>([
  ["overview", Overview],
  ["jobs", Jobs],
  ["queues", Queues],
  ["tasks", Tasks],
  ["errors", Errors],
  ["dead", Dead],
  ["workers", Workers],
]);
const ONES = new Map<string, ComponentType<{ name: string }>>([["jobs", Job]]);

export function Screen() {
  const { screen, rest } = route.value;
  const One = rest ? ONES.get(screen) : undefined;
  if (One) return <One key={rest} name={rest} />;
  const All = rest ? undefined : LISTS.get(screen);
  return All ? <All key={screen} /> : <NotFound />;
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

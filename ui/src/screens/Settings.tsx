/** What is set, where it comes from, and what the doctor finds. */
import type { Doctor, Settings as AllSettings } from "../data/schema";
import { singleKeys, theme, THEMES, zone } from "../data/prefs";
import { useData } from "../data/use";
import { Button, Choice } from "../parts/actions";
import { Ago, Head, Name, StateMark } from "../parts/basics";
import { Command, Problem, Skeleton } from "../parts/states";
import { rich, t } from "../text";

const LEVELS = new Map([
  ["error", "dead"],
  ["bad", "dead"],
  ["critical", "dead"],
  ["warning", "warn"],
  ["warn", "warn"],
  ["ok", "done"],
  ["info", "ready"],
]);

export function Settings() {
  const settings = useData<AllSettings>("settings");
  const doctor = useData<Doctor>("doctor");
  return (
    <>
      <Head title={t("nav.settings")} lede={doctor.data && ledeOf(doctor.data)} />
      <div class="duo bt">
        <div>
          <DoctorPart doctor={doctor} />
          <section class="sec flush">
            <div class="ch">
              <h2>{t("settings.all")}</h2>
              <span class="q3">{t("settings.what")}</span>
            </div>
            {settings.error && <Problem error={settings.error} retry={settings.reload} />}
            {settings.isSlow && <Skeleton />}
            {settings.data && (
              <div class="scroll" tabIndex={0}>
                <table class="tbl">
                  <thead>
                    <tr>
                      <th>{t("settings.name")}</th>
                      <th>{t("settings.value")}</th>
                      <th>{t("settings.origin")}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {settings.data.settings.map((each) => (
                      <tr>
                        <td class="mono nw">
                          <Name text={each.name} />
                        </td>
                        <td class="mono wrap">
                          <Name text={String(each.value)} />
                        </td>
                        <td class="q2">
                          <Name text={each.origin} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
          </section>
        </div>
        <aside>
          <Mine />
          {settings.data && (
            <section>
              <div class="ch">
                <h2>{t("settings.versions")}</h2>
              </div>
              <dl class="dl">
                {Object.entries(settings.data.versions).map(([name, version]) => (
                  <>
                    <dt>
                      <Name text={name} />
                    </dt>
                    <dd>
                      <Name text={String(version)} />
                    </dd>
                  </>
                ))}
              </dl>
            </section>
          )}
        </aside>
      </div>
    </>
  );
}

function DoctorPart({ doctor }: { doctor: ReturnType<typeof useData<Doctor>> }) {
  const { data, error, reload } = doctor;
  return (
    <section class="sec flush first">
      <div class="ch">
        <h2>{t("doctor.title")}</h2>
        {data && (
          <span class="q3">
            {t("doctor.ran")} <Ago at={data.ran_at} />
          </span>
        )}
        <span class="end">
          <Button small icon="retry" onClick={reload}>
            {t("doctor.again")}
          </Button>
        </span>
      </div>
      {error && <Problem error={error} retry={reload} />}
      {!data && !error && <Skeleton rows={3} />}
      <ul class="findings">
        {data?.findings.map((each) => (
          <li data-s={LEVELS.get(each.level) ?? "off"}>
            <StateMark state={LEVELS.get(each.level) ?? "ready"} word={each.level} />
            <div>
              <b>
                <Name text={each.text} />
              </b>
              <small class="q3 mono">{each.code}</small>
              {each.fix && (each.fix.startsWith("durio ") ? <Command text={each.fix} /> : <p class="q2"><Name text={each.fix} /></p>)}
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What is kept on this device only. */
function Mine() {
  return (
    <section>
      <div class="ch">
        <h2>{t("settings.mine")}</h2>
        <span class="q3">{t("settings.mine.what")}</span>
      </div>
      <dl class="dl mine">
        <dt>{t("settings.theme")}</dt>
        <dd>
          <Choice
            label={t("settings.theme")}
            value={theme.value}
            options={THEMES.map((each) => [each, t(`settings.theme.${each}`)] as const)}
            onChange={(value) => {
              theme.value = value;
            }}
          />
        </dd>
        <dt>{t("schedules.zone")}</dt>
        <dd>
          <Choice
            label={t("schedules.zone")}
            value={zone.value}
            options={[
              ["utc", "UTC"],
              ["local", t("settings.local")],
            ]}
            onChange={(value) => {
              zone.value = value;
            }}
          />
        </dd>
        <dt>{t("settings.keys")}</dt>
        <dd>
          <Choice
            label={t("settings.keys")}
            value={singleKeys.value}
            options={[
              ["on", t("settings.on")],
              ["off", t("settings.off")],
            ]}
            onChange={(value) => {
              singleKeys.value = value;
            }}
          />
        </dd>
      </dl>
    </section>
  );
}

function ledeOf({ findings }: Doctor) {
  const bad = findings.filter((each) => LEVELS.get(each.level) === "dead").length;
  const warn = findings.filter((each) => LEVELS.get(each.level) === "warn").length;
  if (bad + warn === 0) return t("doctor.well");
  return rich("doctor.lede", { n: bad + warn });
}

/** What is set, where it comes from, and what the doctor finds. */
import type { Doctor, Settings as AllSettings } from "../data/schema";
import { singleKeys, theme, THEMES, zone } from "../data/prefs";
import { useData } from "../data/use";
import { Choice } from "../parts/actions";
import { Head, Name } from "../parts/basics";
import { Problem, Skeleton } from "../parts/states";
import { t } from "../text";
import { DoctorPart, doctorLede } from "./settings/Doctor";

export function Settings() {
  const settings = useData<AllSettings>("settings");
  const doctor = useData<Doctor>("doctor");
  return (
    <>
      <Head title={t("nav.settings")} lede={doctor.data && doctorLede(doctor.data)} />
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

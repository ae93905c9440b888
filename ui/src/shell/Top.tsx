import { heardAt, paused, state } from "../data/live";
import { zone } from "../data/prefs";
import { me } from "../data/session";
import { formatClock, zoneName } from "../format";
import { Name } from "../parts/basics";
import { Icon } from "../parts/Icon";
import { route } from "../router";
import { known, t } from "../text";
import { hrefOf } from "./menu";
import { crumb } from "./title";

interface TopProps {
  onMenu: () => void;
  onFind: () => void;
  onKeys: () => void;
}

export function Top({ onMenu, onFind, onKeys }: TopProps) {
  const { screen } = route.value;
  const name = known(`nav.${screen}`, screen);
  return (
    <header class="top">
      <button type="button" class="btn bare sq menu" aria-label={t("nav.menu")} aria-controls="nav" onClick={onMenu}>
        <Icon name="menu" />
      </button>
      <div class="crumbs">
        <a href="." class="home">
          <Name text={me.value?.app ?? "Durio"} />
        </a>
        {crumb.value ? <a href={hrefOf(screen)}>{name}</a> : <span aria-current="page">{name}</span>}
        {crumb.value && (
          <span aria-current="page" class="cut">
            <Name text={crumb.value} />
          </span>
        )}
      </div>
      <span class="grow" />
      <button type="button" class="find" aria-label={t("palette.open")} onClick={onFind}>
        <Icon name="search" />
        <span>{t("palette.open")}</span>
        <kbd>Ctrl K</kbd>
      </button>
      <Live />
      <button
        type="button"
        class="btn bare sm zone"
        data-tip={t("zone.tip", { other: zone.value === "utc" ? t("zone.local") : "UTC" })}
        onClick={switchZone}
      >
        {zoneName()}
      </button>
      <button type="button" class="btn bare sq sm help" aria-label={t("keys.title")} data-tip={t("keys.title")} onClick={onKeys}>
        <b>?</b>
      </button>
    </header>
  );
}

export function switchZone(): void {
  zone.value = zone.value === "utc" ? "local" : "utc";
}

function Live() {
  const at = formatClock(new Date(heardAt.value).toISOString());
  const shown = state.value === "polling" ? "live" : state.value;
  const isStale = shown !== "live";
  return (
    <button
      type="button"
      class="btn bare sm live"
      data-live={shown}
      data-tip={t(`live.${state.value}.tip`, { at })}
      aria-pressed={paused.value}
      onClick={() => {
        paused.value = !paused.value;
      }}
    >
      <i class="dot" />
      <span>{t(`live.${state.value}`)}</span>
      {isStale && <small class="q3">{t("live.as_of", { at })}</small>}
    </button>
  );
}

/** A traceback: own frames with their code, library frames folded, the cause last. */
import { useState } from "preact/hooks";

import type { ErrorDetail, Frame } from "../data/schema";
import { formatNumber } from "../format";
import { visible, visibleBlock } from "../names";
import { rich, t } from "../text";
import { Choice, Copy } from "./actions";
import { Name } from "./basics";
import { Icon } from "./Icon";

interface TracebackProps {
  error: ErrorDetail;
  /** As Python prints it. */
  text: string | null;
}

export function Traceback({ error, text }: TracebackProps) {
  const hasLibrary = error.frames.some((frame) => !frame.own);
  const [view, setView] = useState<"own" | "all" | "text">(error.frames.length > 0 ? "own" : "text");
  const options = [
    ...(hasLibrary ? [["own", t("trace.own")] as const] : []),
    ["all", t("trace.all", { n: error.frames.length })] as const,
    ...(text ? [["text", t("trace.text")] as const] : []),
  ];
  return (
    <>
      <div class="row tb">
        {error.frames.length > 0 && <Choice label={t("trace.frames")} value={hasLibrary || view === "text" ? view : "all"} options={options} onChange={setView} />}
        <span class="end row">{text && <Copy text={text} label={t("trace.copy")}>{t("act.copy")}</Copy>}</span>
      </div>
      {view === "text" ? (
        <pre class="trace text" tabIndex={0}>
          {visibleBlock(text ?? "")}
        </pre>
      ) : (
        <div class="trace">
          <Frames frames={error.frames} all={view === "all"} />
          <div class="exc">
            <b>
              <Name text={error.type} />
            </b>
            : <bdi>{visibleBlock(error.text)}</bdi>
            {error.cause && <div>{rich("trace.cause", { cause: error.cause })}</div>}
          </div>
        </div>
      )}
    </>
  );
}

/** The frames of a traceback; those of libraries are folded unless all are wanted. */
export function Frames({ frames, all }: { frames: readonly Frame[]; all?: boolean }) {
  return (
    <>
      {groups(frames, all ?? false).map((group) =>
        group.length > 0 && !group[0]?.own && !all ? <Folded frames={group} /> : group.map((frame) => <One frame={frame} />),
      )}
    </>
  );
}

function One({ frame }: { frame: Frame }) {
  return (
    <>
      <div class={frame.own ? "fr" : "fr lib"}>
        <b>
          <Name text={`${frame.file}:${frame.line}`} />
        </b>
        <span>{rich("trace.in", { name: frame.function })}</span>
        <span class="end q3">{t(frame.own ? "trace.yours" : "trace.library")}</span>
      </div>
      {frame.code && (
        <pre tabIndex={0}>
          <span class="hit" data-l={frame.line}>
            {visible(frame.code)}
          </span>
        </pre>
      )}
    </>
  );
}

function Folded({ frames }: { frames: readonly Frame[] }) {
  const [isOpen, setOpen] = useState(false);
  if (isOpen) return <>{frames.map((frame) => <One frame={frame} />)}</>;
  return (
    <button type="button" class="fr lib" aria-expanded="false" onClick={() => setOpen(true)}>
      <Icon name="right" />
      {t("trace.folded", { n: frames.length, names: packages(frames) })}
    </button>
  );
}

function groups(frames: readonly Frame[], all: boolean): Frame[][] {
  const out: Frame[][] = [];
  for (const frame of frames) {
    const last = out.at(-1);
    if (!all && last?.[0] && !last[0].own && !frame.own) last.push(frame);
    else out.push([frame]);
  }
  return out;
}

/** Return how many frames each library has: `aiosmtplib 5, asyncio 2`. */
function packages(frames: readonly Frame[]): string {
  const counts = new Map<string, number>();
  for (const { file } of frames) {
    const inside = /(?:site-packages|dist-packages|python[\d.]+)[/\\](.+)$/.exec(file)?.[1] ?? file;
    const name = (inside.split(/[/\\]/)[0] ?? inside).replace(/\.py$/, "");
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, n]) => `${name} ${formatNumber(n)}`).join(", ");
}

/** A sentence of the server: it begins with a capital, and its times are those of the page. */
import { formatMoment, formatTime } from "../format";
import { visible } from "../names";

const MOMENT = /\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?(?:\.\d+)?) ?Z/g;

export function Prose({ text }: { text: string }) {
  const parts: (string | { at: string })[] = [];
  let end = 0;
  for (const found of text.matchAll(MOMENT)) {
    parts.push(text.slice(end, found.index), { at: `${found[1]}T${found[2]}Z` });
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return (
    <bdi>
      {parts.map((part, i) =>
        typeof part === "string" ? (
          visible(i === 0 ? part.slice(0, 1).toUpperCase() + part.slice(1) : part)
        ) : (
          <time dateTime={part.at} data-tip={formatTime(part.at)}>
            {formatMoment(part.at)}
          </time>
        ),
      )}
    </bdi>
  );
}

/** The query bar: terms as tokens, one input for the next, completion by the server. */
import { useEffect, useRef, useState } from "preact/hooks";

import type { ApiError } from "../data/client";
import { get } from "../data/client";
import { useKeys } from "../keys";
import { visible } from "../names";
import { isState } from "./basics";
import { splitTerm, terms } from "../query";
import { rich, t } from "../text";
import { Icon } from "./Icon";

interface Suggestion {
  text: string;
  insert: string;
  note: string | null;
}
interface QueryBarProps {
  query: string;
  label: string;
  placeholder: string;
  error: ApiError | null;
  onChange: (query: string) => void;
}

const WAIT_MS = 120;

export function QueryBar({ query, label, placeholder, error, onChange }: QueryBarProps) {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const tokens = terms(query);
  const items = useCompletion(tokens, text, isOpen);
  useKeys({ "/": () => input.current?.focus() });
  const next = useRef(""); // what to type on with, once the query has changed
  useEffect(() => {
    setText(next.current);
    next.current = "";
  }, [query]);

  const commit = (extra: string) => {
    setOpen(false);
    setAt(-1);
    setText("");
    onChange([...tokens, ...terms(extra)].join(" "));
  };
  const take = (item: Suggestion) => {
    setAt(-1);
    if (item.insert.endsWith(":")) {
      setText(item.insert);
      input.current?.focus();
    } else commit(item.insert);
  };
  const drop = (i: number) => onChange(tokens.filter((_, n) => n !== i).join(" "));
  const edit = (i: number) => {
    next.current = tokens[i] ?? "";
    drop(i);
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const chosen = items[at] ?? (event.key === "Tab" && text ? items[0] : undefined);
    if (event.key === "ArrowDown") setAt(Math.min(items.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(-1, at - 1));
    else if (event.key === "Tab" && chosen && isOpen && !event.shiftKey) take(chosen);
    else if (event.key === "Enter") items[at] ? take(items[at]) : commit(text);
    else if (event.key === "Escape") {
      if (isOpen) setOpen(false);
      else input.current?.blur();
    } else if (event.key === "Backspace" && text === "" && tokens.length > 0) edit(tokens.length - 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const isShown = isOpen && items.length > 0;
  return (
    <div class={isShown ? "query open" : "query"} role="search" onClick={(event) => event.target === event.currentTarget && input.current?.focus()}>
      <Icon name="search" />
      {tokens.map((term, i) => (
        <Token term={term} onEdit={() => edit(i)} onDrop={() => drop(i)} />
      ))}
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label={label}
        aria-autocomplete="list"
        aria-expanded={isShown}
        aria-controls="complete"
        aria-activedescendant={isShown && at >= 0 ? `c${at}` : undefined}
        aria-invalid={error?.status === 400}
        placeholder={tokens.length === 0 ? placeholder : t("query.more")}
        autocomplete="off"
        spellcheck={false}
        maxLength={1000}
        value={text}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setOpen(true);
          setAt(-1);
        }}
        onKeyDown={onKeyDown}
      />
      {tokens.length > 0 ? (
        <button type="button" class="copy" aria-label={t("query.clear")} data-tip={t("query.clear")} onClick={() => onChange("")}>
          <Icon name="x" />
        </button>
      ) : (
        <kbd aria-hidden="true">/</kbd>
      )}
      {isShown && <Completion items={items} at={at} onTake={take} />}
    </div>
  );
}

function Token({ term, onEdit, onDrop }: { term: string; onEdit: () => void; onDrop: () => void }) {
  const { key, value, isNot } = splitTerm(term);
  const state = key === "state" && isState(value) ? value : undefined;
  return (
    <span class={state ? "tok s" : "tok"} data-s={state}>
      <button type="button" class="word" aria-label={t("query.edit", { term })} onClick={onEdit}>
        {(key || isNot) && (
          <span class="k">
            {isNot && "-"}
            {key && `${visible(key)}:`}
          </span>
        )}
        <b>{visible(value)}</b>
      </button>
      <button type="button" class="copy" aria-label={t("query.drop", { term })} onClick={onDrop}>
        <Icon name="x" />
      </button>
    </span>
  );
}

function Completion({ items, at, onTake }: { items: Suggestion[]; at: number; onTake: (item: Suggestion) => void }) {
  return (
    <div class="complete" onPointerDown={(event) => event.preventDefault()}>
      <ul role="listbox" id="complete" aria-label={t("query.completion")}>
        {items.map((item, i) => (
          <li role="option" id={`c${i}`} aria-selected={i === at} onClick={() => onTake(item)}>
            <code>{visible(item.text)}</code>
            <small>{item.note && visible(item.note)}</small>
          </li>
        ))}
      </ul>
      <footer>
        <span>
          <kbd>Tab</kbd> {t("query.take")}
        </span>
        <span>
          <kbd>Enter</kbd> {t("query.search")}
        </span>
        <span>{rich("query.not")}</span>
        <span>{rich("query.compare")}</span>
        <span>{rich("query.any")}</span>
      </footer>
    </div>
  );
}

function useCompletion(tokens: string[], text: string, isOpen: boolean): Suggestion[] {
  const [items, setItems] = useState<Suggestion[]>([]);
  useEffect(() => {
    if (!isOpen) {
      setItems([]);
      return undefined;
    }
    const abort = new AbortController();
    const q = [...tokens, text].join(" ");
    const timer = setTimeout(() => {
      get<{ items: Suggestion[] }>("jobs/complete", { q, at: q.length }, abort.signal).then(
        (found) => setItems(found.items),
        () => setItems([]), // no help is no reason to disturb
      );
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [tokens.join(" "), text, isOpen]);
  return items;
}

import { useState } from "preact/hooks";
import { bytes, type CutView, count, plain } from "../lib/format.ts";
import { useLoaded } from "../lib/hooks.ts";
import { copy } from "../lib/toasts.ts";
import { Button, Failure } from "./basics.tsx";
import { Icon } from "./icons.tsx";

/** Entries of an object or array that are drawn at once, and by each wish for more. */
const entriesShown = 100;
/** Characters of a text that are drawn at once, and by each wish for more. */
const charactersShown = 2_000;
const charactersMore = 100_000;
/** Levels that stand open at first. */
const openLevels = 2;
/** A long list or object begins closed below the first level. */
const openEntries = 20;

function TextValue({ text }: { text: string }) {
  const [most, setMost] = useState(charactersShown);
  const shown = text.length > most ? text.slice(0, most) : text;
  return (
    <span class="json-text">
      <bdi>"{plain(JSON.stringify(shown).slice(1, -1))}"</bdi>
      {text.length > most && (
        <button type="button" class="json-more" onClick={() => setMost(most + charactersMore)}>
          {`… ${count(text.length - most)} more characters`}
        </button>
      )}
    </span>
  );
}

function Scalar({ value }: { value: unknown }) {
  if (typeof value === "string") return <TextValue text={value} />;
  return <span class={`json-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
}

const sizeOf = (entries: number, isList: boolean) =>
  `${count(entries)} ${isList ? (entries === 1 ? "item" : "items") : entries === 1 ? "field" : "fields"}`;

function Branch({ name, value, level }: { name: string | undefined; value: object; level: number }) {
  const isList = Array.isArray(value);
  const keys = isList ? undefined : Object.keys(value);
  const size = keys?.length ?? (value as unknown[]).length;
  const [isOpen, setOpen] = useState(level === 0 || (level < openLevels && size <= openEntries));
  const [most, setMost] = useState(entriesShown);
  const [before, after] = isList ? ["[", "]"] : ["{", "}"];
  if (size === 0)
    return (
      <div class="json-row">
        <Name of={name} />
        <span class="json-mark">{`${before}${after}`}</span>
      </div>
    );
  const shown = Math.min(size, most);
  return (
    <div class="json-branch">
      <button
        type="button"
        class="json-row json-toggle"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <Icon name="chevron" size={12} />
        <Name of={name} />
        <span class="json-mark">{before}</span>
        {!isOpen && <span class="json-size">{sizeOf(size, isList)}</span>}
        {!isOpen && <span class="json-mark">{after}</span>}
      </button>
      {isOpen && (
        <div class="json-inside">
          {Array.from({ length: shown }, (_, index) => {
            const key = keys?.[index] ?? `${index}`;
            const inner = (value as Record<string, unknown>)[key];
            return <Entry key={key} name={key} value={inner} level={level + 1} />;
          })}
          {size > shown && (
            <button type="button" class="json-more" onClick={() => setMost(most + entriesShown)}>
              {`… ${count(size - shown)} more`}
            </button>
          )}
        </div>
      )}
      {isOpen && <div class="json-row json-mark json-end">{after}</div>}
    </div>
  );
}

const Name = ({ of }: { of: string | undefined }) =>
  of === undefined ? null : (
    <span class="json-name">
      <bdi>{plain(of.length > charactersShown ? `${of.slice(0, charactersShown)}…` : of)}</bdi>
      <span class="json-mark">: </span>
    </span>
  );

function Entry({ name, value, level }: { name?: string; value: unknown; level: number }) {
  if (typeof value === "object" && value !== null) return <Branch name={name} value={value} level={level} />;
  return (
    <div class="json-row json-leaf">
      <Name of={name} />
      <Scalar value={value} />
    </div>
  );
}

/** JSON as a tree that opens level by level; what is long is cut and shown on demand. */
export function JsonView({ value, what }: { value: unknown; what: string }) {
  const text = () => JSON.stringify(value, null, 2) ?? "null";
  return (
    <div class="json">
      <div class="json-tools">
        <Button kind="quiet" icon="copy" label={`Copy ${what}`} onClick={() => void copy(text(), what)} />
      </div>
      <div class="json-tree">
        <Entry value={value} level={0} />
      </div>
    </div>
  );
}

/** JSON text, which is read here: text that is no JSON is shown as it is. */
export function JsonTextView({ text, what }: { text: string; what: string }) {
  let value: unknown = text;
  try {
    value = JSON.parse(text);
  } catch {
    // Shown as the text that it is.
  }
  return (
    <>
      <JsonView value={value} what={what} />
      {text.length > charactersShown && <p class="hint">{bytes(text.length)}</p>}
    </>
  );
}

type ReadWhole = (signal: AbortSignal) => Promise<unknown>;

function Whole({ cut, what, read }: { cut: CutView; what: string; read: ReadWhole }) {
  const { value, error, reload } = useLoaded(
    async (signal) => ({ read: await read(signal) }),
    [cut.bytes, cut.begins],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  return value ? <JsonView value={value.read} what={what} /> : <p class="faint">Reading…</p>;
}

/** A value, or how it begins where the server cut it: `read` then gives the whole to who wants it. */
export function Payload(props: { value: unknown; cut: CutView | undefined; what: string; read: ReadWhole }) {
  const { value, cut, what, read } = props;
  const [isWanted, setWanted] = useState(false);
  if (!cut) return <JsonView value={value} what={what} />;
  if (isWanted) return <Whole {...{ cut, what, read }} />;
  return (
    <div class="json">
      <p class="json-tree">
        <code class="cut-begins">
          <bdi>{`${plain(cut.begins.slice(0, charactersShown))}…`}</bdi>
        </code>
      </p>
      <Button onClick={() => setWanted(true)}>{`Show all ${bytes(cut.bytes)} of the ${what}`}</Button>
    </div>
  );
}

import { useEffect, useRef, useState } from "preact/hooks";
import { clockTime, count, cut, instantOf, plain } from "../../lib/format.ts";
import { useLive } from "../../lib/hooks.ts";
import type { LiveFrame } from "../../lib/live.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { Button, Empty, Text } from "../../ui/basics.tsx";

const keptMax = 2_000;
const replayed = 100;
/** Deliveries are gathered for this long and drawn together. */
const gatherMs = 100;
const shownCharacters = 400;

interface TailLine {
  id: string;
  name: string;
  at: number | undefined;
  text: string;
}

const lineOf = ({ topic, eventId = "", data, meta }: LiveFrame): TailLine => ({
  id: eventId,
  name: topic.slice(topic.indexOf(":") + 1),
  at: instantOf(meta?.timestamp),
  text: cut(JSON.stringify(data), shownCharacters),
});

/** A text that counts once the reader has left it or pressed Enter: half a pattern is none. */
function Committed(props: { label: string; placeholder: string; name: string; isInvalid?: boolean }) {
  const given = address.value.query.get(props.name) ?? "";
  const [typed, setTyped] = useState(given);
  useEffect(() => setTyped(given), [given]);
  const commit = () => setQuery({ [props.name]: typed.trim() });
  return (
    <input
      class="filter-text code"
      type="search"
      aria-label={props.label}
      aria-invalid={props.isInvalid}
      placeholder={props.placeholder}
      value={typed}
      spellcheck={false}
      onInput={({ currentTarget: { value } }) => setTyped(value)}
      onChange={commit}
      onKeyDown={({ key }) => key === "Enter" && commit()}
    />
  );
}

/** Events as they come, after the newest of those that match. A lost connection goes on behind the last one. */
export function Tail() {
  const { query } = address.value;
  const pattern = query.get("pattern") || ">";
  const filter = query.get("filter") ?? "";
  const [lines, setLines] = useState<readonly TailLine[]>([]);
  const [isHeld, setHeld] = useState(false);
  const [refused, setRefused] = useState("");
  const gathered = useRef<TailLine[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const seen = useRef(new Set<string>());

  useEffect(() => {
    gathered.current = [];
    seen.current = new Set();
    setLines([]);
    setRefused("");
  }, [pattern, filter]);
  const show = () => {
    timer.current = undefined;
    const added = gathered.current.splice(0).reverse();
    setLines((before) => [...added, ...before].slice(0, keptMax));
  };
  useEffect(() => {
    if (!isHeld && gathered.current.length > 0) show();
    return () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    };
  }, [isHeld]);
  useLive(
    `events:${pattern}`,
    {
      onFrame(frame) {
        const line = lineOf(frame);
        if (seen.current.has(line.id)) return;
        seen.current.add(line.id);
        if (seen.current.size > keptMax * 2) seen.current.delete(seen.current.values().next().value!);
        gathered.current.push(line);
        if (gathered.current.length > keptMax) gathered.current.shift();
        if (!isHeld) timer.current ??= setTimeout(show, gatherMs);
      },
      onRefused: setRefused,
    },
    { resumes: true, replay: replayed, ...(filter && { filter }) },
  );
  return (
    <>
      <search class="filters">
        <div class="filter-row">
          <Committed
            name="pattern"
            label="Pattern of names"
            placeholder="order.* or >"
            isInvalid={refused !== ""}
          />
          <Committed
            name="filter"
            label="Filter in CEL"
            placeholder='data.total > 100 && event.name != "x"'
            isInvalid={refused !== ""}
          />
          <Button icon={isHeld ? "play" : "pause"} isPressed={isHeld} onClick={() => setHeld(!isHeld)}>
            {isHeld ? "Go on" : "Hold"}
          </Button>
          <Button kind="quiet" onClick={() => setLines([])}>
            Clear
          </Button>
        </div>
        {refused !== "" && (
          <p class="form-error" role="alert">
            <Text of={refused} />
          </p>
        )}
      </search>
      <p class="hint">{`${count(lines.length)} shown, newest first${isHeld ? "; held, nothing is lost" : ""}`}</p>
      {lines.length === 0 ? (
        <Empty title={refused === "" ? "Waiting for events" : "Nothing to show"} />
      ) : (
        <ol class="tail">
          {lines.map((line) => (
            <li key={line.id} data-event={line.id}>
              <span class="number tail-time">{line.at === undefined ? "" : clockTime(line.at)}</span>
              <a class="tail-name" href={hrefOf(["events", line.id])}>
                <Text of={line.name} />
              </a>
              <code class="tail-data">
                <bdi>{plain(line.text)}</bdi>
              </code>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}

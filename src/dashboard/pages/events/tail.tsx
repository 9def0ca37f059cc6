import { useEffect, useRef, useState } from "preact/hooks";
import { notePaths, suggestCel } from "../../lib/cel.ts";
import { clockTime, count, cut, instantOf, plain } from "../../lib/format.ts";
import type { LiveFrame } from "../../lib/live.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { useTail } from "../../lib/tail.ts";
import { Button, Empty, Text } from "../../ui/basics.tsx";
import { firstReplay, ReplayChoice } from "../../ui/replay-choice.tsx";
import { SuggestInput } from "../../ui/suggest.tsx";

const keptMax = 2_000;
const shownCharacters = 400;
/** Names of events that are offered. */
const namesMax = 500;

const lineOf = ({ topic, eventId = "", data, meta }: LiveFrame) => ({
  id: eventId,
  name: topic.slice(topic.indexOf(":") + 1),
  at: instantOf(meta?.timestamp),
  text: cut(JSON.stringify(data), shownCharacters),
});

/** What is typed, put into the address when the reader leaves the field or presses Enter, not before. */
function useCommitted(name: string) {
  const given = address.value.query.get(name) ?? "";
  const [value, onInput] = useState(given);
  useEffect(() => onInput(given), [given]);
  return { value, onInput, onCommit: () => setQuery({ [name]: value.trim() }) };
}

/** Events as they come, after the newest of those that match. */
export function Tail() {
  const { query } = address.value;
  const pattern = query.get("pattern") || ">";
  const filter = query.get("filter") ?? "";
  const [replay, setReplay] = useState(firstReplay);
  const paths = useRef(new Set<string>());
  const names = useRef(new Set<string>());
  const { lines, isHeld, hold, refused, clear } = useTail(`events:${pattern}`, {
    ...{ filter, replay, keptMax },
    lineOf(frame) {
      const line = lineOf(frame);
      notePaths(paths.current, frame.data, "data");
      if (names.current.size < namesMax) names.current.add(line.name);
      return line;
    },
  });
  const isOfFilter = refused.startsWith("filter: ");
  return (
    <>
      <search class="filters">
        <div class="filter-row">
          <SuggestInput
            {...useCommitted("pattern")}
            label="Pattern of names"
            placeholder="order.* or >"
            suggest={(word) => [...names.current].filter((name) => name.startsWith(word)).sort()}
            error={isOfFilter ? "" : refused}
          />
          <SuggestInput
            {...useCommitted("filter")}
            label="Filter in CEL"
            placeholder='data.total > 100 && event.name != "x"'
            suggest={(word) => suggestCel(word, paths.current)}
            error={isOfFilter ? refused.slice("filter: ".length) : ""}
          />
          <ReplayChoice value={replay} onChange={setReplay} />
          <Button icon={isHeld ? "play" : "pause"} isPressed={isHeld} onClick={() => hold(!isHeld)}>
            {isHeld ? "Go on" : "Hold"}
          </Button>
          <Button kind="quiet" text="Clear" onClick={clear} />
        </div>
      </search>
      <p class="hint">{`${count(lines.length)} shown, newest first${isHeld ? "; what comes is shown when you go on" : ""}`}</p>
      {lines.length === 0 ? (
        <Empty title={refused === "" ? "Waiting for events" : "Nothing to show"}>
          <p>
            {"Events stand here as they come. "}
            <a href={hrefOf(["events"], { view: "browse" })}>Browse those that came before</a>.
          </p>
        </Empty>
      ) : (
        <ol class="tail">
          {lines.map((line) => (
            <li key={line.id} data-event={line.id}>
              <span class="number tail-time">{line.at === undefined ? "" : clockTime(line.at)}</span>
              <Text of={line.name} href={hrefOf(["events", line.id])} class="tail-name" />
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

import { useEffect, useRef, useState } from "preact/hooks";
import { plain } from "../../lib/format.ts";
import { address, setQuery } from "../../lib/router.ts";
import { chosenStatuses, runStatuses } from "../../lib/runs.ts";
import { Button } from "../../ui/basics.tsx";
import { Select } from "../../ui/dialog.tsx";
import { Icon } from "../../ui/icons.tsx";
import { lookOf } from "../../ui/status.tsx";

/** What is typed reaches the address when the reader pauses. */
const pauseMs = 250;

/** A text that stands in the address under `name`. */
function TextFilter({ name, label, placeholder }: { name: string; label: string; placeholder: string }) {
  const given = address.value.query.get(name) ?? "";
  const [typed, setTyped] = useState(given);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (timer.current === undefined) setTyped(given);
  }, [given]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <input
      class="filter-text"
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={typed}
      spellcheck={false}
      onInput={({ currentTarget: { value } }) => {
        setTyped(value);
        clearTimeout(timer.current);
        timer.current = setTimeout(() => {
          timer.current = undefined;
          setQuery({ [name]: value.trim() });
        }, pauseMs);
      }}
    />
  );
}

const spans = [
  ["", "Any time"],
  ["1m", "Last minute"],
  ["15m", "Last 15 minutes"],
  ["1h", "Last hour"],
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
] as const;

/** What stands in the address beside the status, and how a chip says it. */
const chipWords: Readonly<Record<string, string>> = {
  q: "Holds",
  function: "Function",
  name: "Event",
  event: "Event id",
  where: "Attribute",
  says: "Error says",
  error: "One kind of failure",
  since: "Created",
  until: "Until",
};

const wordFor = (name: string, value: string): string => {
  if (name === "error") return chipWords.error!;
  const span = spans.find(([word]) => word === value)?.[1];
  return `${chipWords[name]}: ${name === "since" && span ? span.toLowerCase() : plain(value)}`;
};

/** The filters of the list; all of them stand in the address. */
export function FilterBar() {
  const { query } = address.value;
  const given = Object.keys(chipWords).filter((name) => query.get(name));
  const chosen = chosenStatuses(query.get("status"));
  const toggle = (status: string) => {
    const next = chosen.includes(status) ? chosen.filter((one) => one !== status) : [...chosen, status];
    setQuery({ status: next.join(",") });
  };
  return (
    <search class="filters">
      <div class="filter-row">
        <span class="filter-search">
          <Icon name="search" />
          <TextFilter name="q" label="Search runs" placeholder="Id, function or event" />
        </span>
        <TextFilter name="function" label="Function id" placeholder="Function, exactly" />
        <TextFilter name="name" label="Event name" placeholder="Event, exactly" />
        <TextFilter name="says" label="Text of the error" placeholder="Error says…" />
        <TextFilter name="event" label="Event id" placeholder="Event id, evt_…" />
        <TextFilter name="where" label="Attribute" placeholder="orderId=L22" />
        <Select
          label="Created"
          value={query.get("since") ?? ""}
          options={spans}
          onInput={(since) => setQuery({ since })}
        />
        {(given.length > 0 || chosen.length > 0) && (
          <Button
            kind="quiet"
            icon="close"
            onClick={() =>
              setQuery(Object.fromEntries(["status", ...given].map((name) => [name, undefined])))
            }
          >
            Clear
          </Button>
        )}
      </div>
      <fieldset class="chips">
        <legend class="visually-hidden">Filters</legend>
        {given.map((name) => (
          <button
            key={name}
            type="button"
            class={`chip ${name === "error" ? "bad" : ""}`}
            aria-pressed="true"
            onClick={() => setQuery({ [name]: undefined })}
          >
            <Icon name="cross" size={12} />
            {wordFor(name, query.get(name)!)}
          </button>
        ))}
        {runStatuses.map((status) => {
          const { word, tone, icon } = lookOf(status);
          const isOn = chosen.includes(status);
          return (
            <button
              key={status}
              type="button"
              class={`chip ${tone}`}
              aria-pressed={isOn}
              onClick={() => toggle(status)}
            >
              <Icon name={icon} size={12} />
              {word}
            </button>
          );
        })}
      </fieldset>
    </search>
  );
}

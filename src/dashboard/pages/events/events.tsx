import { useEffect, useState } from "preact/hooks";
import { parsedJson, rpc } from "../../lib/api.ts";
import { type EventView, listEvents } from "../../lib/events.ts";
import { count, cut, dateTime, plain, writeJson } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { address, go, hrefOf, setQuery } from "../../lib/router.ts";
import { getSchema, type SchemaView } from "../../lib/schemas.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Failure, Page, Tabs, Text } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { Icon } from "../../ui/icons.tsx";
import { hasFields, SchemaForm } from "../../ui/schema-form.tsx";
import { Tail } from "./tail.tsx";

/** A name is looked up once nothing more is typed for so long. */
const typedMs = 400;

/** The latest schema of an event; undefined where it has none, or none that the viewer may read. */
function useSchemaOf(name: string): SchemaView | undefined {
  const [found, setFound] = useState<SchemaView>();
  useEffect(() => {
    setFound(undefined);
    if (name === "" || !may("schemas:read")) return;
    const over = new AbortController();
    const timer = setTimeout(() => {
      getSchema(name, undefined, over.signal).then(setFound, () => {});
    }, typedMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [name]);
  return found;
}

/** Emits an event, by the fields of its schema where it has one. */
export function EmitDialog(props: DialogEnds & { name?: string; data?: unknown }) {
  const first = () => ({ name: props.name ?? "", text: writeJson(props.data ?? {}) });
  const [{ name, text }, field] = useFields(first);
  const [wantsText, setWantsText] = useState(false);
  const found = useSchemaOf(name.trim());
  const schema = found?.event === name.trim() ? found : undefined;
  const data = dataOf(text);
  const hasForm = schema !== undefined && hasFields(schema.schema) && data !== undefined;
  const submit = async () => {
    const { eventId = "", runIds = [] } = await rpc("SvcService", "Emit", {
      ...{ event: name.trim(), dataValue: parsedJson(text, "data") },
      ...(schema && { version: schema.version }),
    });
    go(hrefOf(["events", eventId]));
    return `Emitted; ${runIds.length} ${runIds.length === 1 ? "run" : "runs"} started`;
  };
  return (
    <FormDialog title="Emit an event" submit="Emit" onSubmit={submit} onClose={props.onClose}>
      <Field label="Name" isRequired {...field("name")} hint="Such as order.placed" />
      {schema && <p class="hint">{`By version ${schema.version} of its schema`}</p>}
      {hasForm && !wantsText ? (
        <SchemaForm
          schema={schema.schema}
          value={data}
          onChange={(changed) => field("text").onInput(writeJson(changed))}
        />
      ) : (
        <Field label="Data (JSON)" isCode rows={10} {...field("text")} />
      )}
      {hasForm && (
        <p>
          <Button kind="quiet" isPressed={wantsText} onClick={() => setWantsText(!wantsText)}>
            As JSON
          </Button>
        </p>
      )}
    </FormDialog>
  );
}

/** An object that fields can show; undefined for any other text. */
function dataOf(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const pageRows = 100;
const shownCharacters = 200;
/** Of the data of each: more is not shown. */
const listedBytesMax = 2_048;

export function EventsPage() {
  const isBrowsing = address.value.query.get("view") === "browse";
  return (
    <Page
      title="Events"
      actions={
        may("events:emit") && (
          <Opener kind="primary" icon="events" text="Emit…">
            {(onClose) => <EmitDialog onClose={onClose} />}
          </Opener>
        )
      }
    >
      <Tabs
        label="How events are shown"
        tabs={[
          { name: "Live tail", href: hrefOf(["events"]), isShown: !isBrowsing },
          { name: "Browse", href: hrefOf(["events"], { view: "browse" }), isShown: isBrowsing },
        ]}
      />
      {isBrowsing ? <Browse /> : <Tail />}
    </Page>
  );
}

const lineOf = ({ data, cuts }: EventView): string => cuts.data?.begins ?? JSON.stringify(data) ?? "";

function Browse() {
  const { query } = address.value;
  const search = query.get("q") ?? "";
  const [pagesShown, setPagesShown] = useState(1);
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const events: EventView[] = [];
      let cursor = "";
      let total = "";
      for (let page = 0; page < pagesShown; page++) {
        const asked = {
          ...{ limit: `${pageRows}`, max_value_bytes: `${listedBytesMax}` },
          ...(search && { search }),
          ...(cursor && { cursor }),
        };
        const found = await listEvents(asked, signal);
        events.push(...found.events);
        cursor = found.nextCursor;
        total = `${count(found.total)}${found.isCapped ? "+" : ""}`;
        if (cursor === "") break;
      }
      return { events, total, hasMore: cursor !== "" };
    },
    [search, pagesShown],
  );
  return (
    <>
      <search class="filters">
        <div class="filter-row">
          <span class="filter-search">
            <Icon name="search" />
            <input
              type="search"
              aria-label="Search events"
              placeholder="Name or id"
              value={search}
              onInput={({ currentTarget: { value: typed } }) => setQuery({ q: typed })}
            />
          </span>
          <Button icon="refresh" label="Read again" onClick={reload} />
        </div>
      </search>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value && value.events.length === 0 && (
        <Empty title={search === "" ? "No events yet" : "No event has that name or id"} docs="events" />
      )}
      {value && value.events.length > 0 && (
        <>
          <p class="hint">{`${value.total === "1" ? "1 event" : `${value.total} events`}, newest first`}</p>
          <ol class="tail">
            {value.events.map((event) => (
              <li key={event.id} data-event={event.id}>
                <span class="number tail-time">{event.at === undefined ? "" : dateTime(event.at)}</span>
                <Text of={event.name} href={hrefOf(["events", event.id])} class="tail-name" />
                <code class="tail-data">
                  <bdi>{plain(cut(lineOf(event), shownCharacters))}</bdi>
                </code>
              </li>
            ))}
          </ol>
        </>
      )}
      {value?.hasMore && <Button onClick={() => setPagesShown(pagesShown + 1)}>Show more</Button>}
    </>
  );
}

import { useState } from "preact/hooks";
import { type EventView, listEvents } from "../../lib/events.ts";
import { count, cut, dateTime, plain } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { address, hrefOf, setQuery } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Failure, Page, Tabs, Text } from "../../ui/basics.tsx";
import { Opener } from "../../ui/dialog.tsx";
import { Icon } from "../../ui/icons.tsx";
import { EmitDialog } from "./emit.tsx";
import { Tail } from "./tail.tsx";

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

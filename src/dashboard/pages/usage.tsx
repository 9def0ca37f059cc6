import type { Static } from "@sinclair/typebox";
import type { UsageShape } from "../../domain/record/usage/operations.ts";
import { rest } from "../lib/api.ts";
import { bytes, count, duration, textOf } from "../lib/format.ts";
import { useLoaded, useNet } from "../lib/hooks.ts";
import { address, hrefOf, queryOf, setQuery } from "../lib/router.ts";
import { csvOf } from "../lib/sql-text.ts";
import { BarChart } from "../ui/bar-chart.tsx";
import { Button, Page, SearchFilter, Tabs, Text, Tile } from "../ui/basics.tsx";
import { download } from "../ui/download.ts";
import { type Column, ReadTable } from "../ui/table.tsx";

type UsageData = Static<typeof UsageShape>;
type UsageLineData = UsageData["rows"][number];

/** Nodes write what they counted once a minute. */
const readMs = 60_000;

const number = (name: string, of: (row: UsageLineData) => number): Column<UsageLineData> => ({
  ...{ name, isNumber: true, of: (row) => count(of(row)) },
});

const counted: readonly Column<UsageLineData>[] = [
  number("Runs", ({ runs_started }) => runs_started),
  number("Completed", ({ runs_completed }) => runs_completed),
  number("Failed", ({ runs_failed }) => runs_failed),
  number("Cancelled", ({ runs_cancelled }) => runs_cancelled),
  number("Steps", ({ steps }) => steps),
  { name: "Worker time", isNumber: true, of: ({ worker_ms }) => duration(worker_ms) },
];

const ofDays: readonly Column<UsageLineData>[] = [
  number("Events", ({ events = 0 }) => events),
  { name: "Bytes of events", isNumber: true, of: ({ event_bytes = 0 }) => bytes(event_bytes) },
];

const day: Column<UsageLineData> = { name: "Day, UTC", of: (row) => textOf(row.day) };
const functionOf: Column<UsageLineData> = {
  name: "Function",
  of: ({ function_id }) =>
    function_id === undefined ? (
      <span class="faint">all others</span>
    ) : (
      <a href={hrefOf(["functions", function_id])}>
        <Text of={function_id} in="span" />
      </a>
    ),
};

function Day({ label, name, value }: { label: string; name: string; value: string | undefined }) {
  return (
    <input
      type="date"
      aria-label={label}
      value={value}
      onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value })}
    />
  );
}

/** The rows as they came, one name a column. */
function saved({ rows }: UsageData): void {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = rows.map((row) => columns.map((name) => `${row[name as keyof UsageLineData] ?? ""}`));
  download("usage.csv", "text/csv;charset=utf-8", csvOf({ columns, rows: cells }));
}

export function UsagePage() {
  const { query } = address.value;
  const asked = {
    ...{ from: query.get("from") ?? "", to: query.get("to") ?? "" },
    ...{ function_id: query.get("function") ?? "", group_by: query.get("by") ?? "" },
  };
  const path = `/api/v1/usage${queryOf(asked)}`;
  const { value, error, reload } = useLoaded((signal) => rest<UsageData>(path, { signal }), [path]);
  useNet(reload, readMs);
  const isByFunction = asked.group_by === "function";
  const link = (by: string) => hrefOf(["usage"], { ...Object.fromEntries(query), by });
  const total = value?.total;
  return (
    <Page
      title="Usage"
      about="What this environment used, up to a minute late"
      actions={value && <Button text="Download as CSV" onClick={() => saved(value)} />}
    >
      <Tabs
        label="Counted by"
        tabs={[
          { name: "By day", href: link(""), isShown: !isByFunction },
          { name: "By function", href: link("function"), isShown: isByFunction },
        ]}
      />
      <SearchFilter label="Function" placeholder="Id of a function" name="function">
        <Day label="From" name="from" value={asked.from || value?.from} />
        <Day label="To" name="to" value={asked.to || value?.to} />
      </SearchFilter>
      {total && (
        <div class="tiles">
          <Tile name="Runs" value={count(total.runs_started)} />
          <Tile name="Failed" value={count(total.runs_failed)} />
          <Tile name="Steps" value={count(total.steps)} />
          <Tile name="Worker time" value={duration(total.worker_ms)} />
          {asked.function_id === "" && (
            <Tile name="Events" value={count(total.events)} note={bytes(total.event_bytes)} />
          )}
        </div>
      )}
      {value && !isByFunction && value.rows.length > 1 && (
        <BarChart
          what="Runs a day"
          bars={value.rows.map((row) => ({ name: textOf(row.day), value: row.runs_started }))}
        />
      )}
      <ReadTable
        read={{ value: value?.rows, error, reload }}
        keyOf={(row) => `${row.day ?? ""} ${row.function_id ?? ""}`}
        columns={[
          ...(isByFunction ? [functionOf] : [day]),
          ...counted,
          ...(isByFunction || asked.function_id !== "" ? [] : ofDays),
        ]}
        label="Usage"
        empty="Nothing was used in these days"
        docs="usage"
        says="A row comes within a minute of the first run or event of a day."
      />
    </Page>
  );
}

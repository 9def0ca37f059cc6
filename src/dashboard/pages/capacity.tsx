import { rest } from "../lib/api.ts";
import { count, dateTime, duration, instantOf } from "../lib/format.ts";
import { useFollowed, useLoaded } from "../lib/hooks.ts";
import { address, hrefOf } from "../lib/router.ts";
import { Page, Tabs, Text, When } from "../ui/basics.tsx";
import { type Column, ReadTable } from "../ui/table.tsx";

type CapacityRow = Record<string, string | number | boolean | Record<string, string> | undefined>;

const text = (value: CapacityRow[string]): string =>
  typeof value === "string" || typeof value === "number" ? `${value}` : "";

const said = (name: string, field: string): Column<CapacityRow> => ({
  ...{ name, of: (row) => <Text of={text(row[field])} /> },
});
const number = (name: string, field: string): Column<CapacityRow> => ({
  ...{ name, isNumber: true, of: (row) => count(Number(row[field] ?? 0)) },
});
/** A limit of 0 is none. */
const limit = (name: string, field: string): Column<CapacityRow> => ({
  ...{ name, isNumber: true },
  of: (row) => (Number(row[field] ?? 0) === 0 ? <span class="faint">none</span> : count(Number(row[field]))),
});
const time = (name: string, field: string): Column<CapacityRow> => ({
  ...{ name, isNumber: true, of: (row) => <When at={text(row[field])} /> },
});

const environment = said("Environment", "environment_id");
const functionOf = said("Function", "function_id");

/** The views of dispatching, each with what names a row and its columns. */
const views: Record<
  string,
  { name: string; key: readonly string[]; columns: readonly Column<CapacityRow>[] }
> = {
  stats: {
    name: "Functions",
    key: ["environment_id", "function_id"],
    columns: [
      functionOf,
      environment,
      number("Running", "active_leases"),
      limit("Limit", "lane_limit"),
      number("Queued", "queued"),
      number("Reserved", "reservations"),
      {
        name: "Oldest waits",
        isNumber: true,
        of: ({ oldest_queue_age_seconds }) => duration(Number(oldest_queue_age_seconds ?? 0) * 1_000),
      },
    ],
  },
  queue: {
    name: "Queue",
    key: ["run_id"],
    columns: [
      said("Run", "run_id"),
      functionOf,
      environment,
      said("Waits for", "blocking_reason"),
      time("Enqueued", "first_enqueued_at"),
      time("Due", "eligible_at"),
    ],
  },
  leases: {
    name: "Leases",
    key: ["lease_id"],
    columns: [
      said("Run", "run_id"),
      functionOf,
      environment,
      time("Since", "activated_at"),
      {
        name: "Ends",
        isNumber: true,
        of: ({ expires_at }) => dateTime(instantOf(text(expires_at)) ?? 0),
      },
    ],
  },
  lanes: {
    name: "Lanes",
    key: ["lane_id"],
    columns: [
      said("Lane", "lane_id"),
      functionOf,
      environment,
      said("Shared by", "scope"),
      number("Held", "active_reserved"),
      limit("Limit", "limit"),
      time("Used", "last_used_at"),
    ],
  },
  sessions: {
    name: "Workers",
    key: ["session_id"],
    columns: [
      said("Worker", "worker_id"),
      environment,
      said("Node", "engine_node_id"),
      { name: "Draining", of: ({ draining }) => (draining ? "yes" : "no") },
      time("Since", "created_at"),
    ],
  },
  credits: {
    name: "Places",
    key: ["credit_id"],
    columns: [
      said("Worker", "worker_id"),
      environment,
      number("Place", "slot_ordinal"),
      { name: "Taken by", of: ({ claimed, claimed_run_id }) => (claimed ? text(claimed_run_id) : "free") },
      said("Node", "engine_node_id"),
    ],
  },
  buckets: {
    name: "Queues",
    key: ["environment_id", "function_id", "lane_id"],
    columns: [functionOf, environment, said("Lane", "lane_id"), time("Dispatched", "last_dispatched_at")],
  },
};

const rowsAsked = 200;
const readMs = 5_000;

/** What dispatching holds, of all tenants. */
export function CapacityPage() {
  const asked = address.value.query.get("view") ?? "stats";
  const shown = asked in views ? asked : "stats";
  const { columns, key } = views[shown]!;
  const read = useLoaded(
    (signal) => rest<CapacityRow[]>(`/api/v1/capacity/${shown}?limit=${rowsAsked}`, { signal }),
    [shown],
  );
  useFollowed(read.reload, { list: "capacity", everyMs: readMs });
  return (
    <Page title="Capacity" about="What runs, waits and is free, in every environment of every tenant">
      <Tabs
        label="Views"
        tabs={Object.entries(views).map(([view, { name }]) => ({
          ...{ name, isShown: view === shown },
          href: hrefOf(["capacity"], { view: view === "stats" ? "" : view }),
        }))}
      />
      <ReadTable
        key={shown}
        {...{ read, columns }}
        keyOf={(row) => key.map((field) => text(row[field])).join(" ")}
        empty="Nothing here now"
      />
    </Page>
  );
}

import type { Static } from "@sinclair/typebox";
import type { BatchShape } from "../../../domain/engine/batches/operations.ts";
import type { EntryShape } from "../../../domain/engine/debounce/operations.ts";
import { base64url, rest } from "../../lib/api.ts";
import { count, dateTime, duration, instantOf } from "../../lib/format.ts";
import type { FunctionView } from "../../lib/functions.ts";
import { useFollowed, useLoaded, useNet, usePages } from "../../lib/hooks.ts";
import { hrefOf, queryOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Section, Text, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { BreakersOf } from "../breakers.tsx";
import { Schedules } from "../schedules.tsx";
import { listWorkers } from "../workers.tsx";

const readMs = 5_000;

/** What moves the runs of a function: its workers, its schedule, what waits to begin, and its endpoint. */
export const Serving = ({ of }: { of: FunctionView }) => (
  <>
    {may("functions:read") && <Workers functionId={of.id} />}
    {of.triggers.some(({ cron }) => cron) && <Schedules of={of.id} />}
    {may("functions:read") && of.definition.debounce !== undefined && <Debounced functionId={of.id} />}
    {may("functions:read") && of.definition.batch !== undefined && <Gathering functionId={of.id} />}
    {of.endpointUrl !== "" && <BreakersOf id={of.id} title="Its endpoint" />}
  </>
);

function Workers({ functionId }: { functionId: string }) {
  const read = useLoaded(
    async (signal) =>
      (await listWorkers(signal)).filter(({ function_ids }) => function_ids.includes(functionId)),
    [functionId],
  );
  useFollowed(read.reload, { frames: "system.worker.>" });
  return (
    <Section title="Workers that serve it" aside={<a href={hrefOf(["workers"])}>All workers</a>}>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          { name: "Worker", of: ({ id }) => <Text of={id} /> },
          { name: "SDK", of: ({ version }) => <Text of={version.sdk} /> },
          {
            name: "Jobs of all its functions",
            isNumber: true,
            of: ({ active_jobs, max_concurrent }) => `${active_jobs} of ${max_concurrent}`,
          },
          { name: "Heartbeat", isNumber: true, of: ({ last_heartbeat }) => <When at={last_heartbeat} /> },
        ]}
        empty="No connected worker serves it"
        says="Its runs are queued until a worker that has its code connects."
      />
    </Section>
  );
}

type ArmedData = Static<typeof EntryShape>;

const armedPath = "/api/v1/debounce/entries";

function Debounced({ functionId }: { functionId: string }) {
  const read = useLoaded(
    async (signal) =>
      (await rest<{ entries: ArmedData[] }>(`${armedPath}?limit=1000`, { signal })).entries.filter(
        ({ function_id }) => function_id === functionId,
      ),
    [functionId],
  );
  useNet(read.reload, readMs);
  const cancel = async ({ environment_id, debounce_key }: ArmedData) => {
    const path = [environment_id, functionId, base64url(debounce_key)].map(encodeURIComponent).join("/");
    const call = () => rest(`${armedPath}/${path}`, { method: "DELETE" });
    if (await attempt(call, "Its event starts no run")) read.reload();
  };
  return (
    <Section title="Held back until it is quiet">
      <ReadTable
        read={read}
        keyOf={({ debounce_key, key_kind = "" }) => `${key_kind} ${debounce_key}`}
        columns={[
          {
            name: "Key",
            of: ({ debounce_key: key, key_kind: kind }) => (
              <Text of={kind === "text" ? JSON.stringify(key) : kind === "none" ? "(no value)" : key} />
            ),
          },
          {
            name: "Newest event",
            of: ({ event_id }) => (
              <a href={hrefOf(["events", event_id])}>
                <Text of={event_id} in="code" />
              </a>
            ),
          },
          { name: "Quiet for", isNumber: true, of: ({ period_ms }) => duration(period_ms) },
          { name: "Begins", isNumber: true, of: ({ fires_at }) => dateTime(instantOf(fires_at) ?? 0) },
          {
            name: "",
            of: (armed) =>
              may("functions:invoke") &&
              armed.debounce_key !== "" && (
                <span class="row-actions">
                  <Button onClick={() => void cancel(armed)}>Cancel</Button>
                </span>
              ),
          },
        ]}
        empty="No event is held back"
      />
    </Section>
  );
}

type BatchData = Static<typeof BatchShape>;

/** Events that wait to start one run together. */
function Gathering({ functionId }: { functionId: string }) {
  const read = usePages(
    async (cursor, signal) => {
      const path = `/api/v1/batches${queryOf({ function_id: functionId, cursor })}`;
      const page = await rest<{ batches: BatchData[]; next_cursor?: string }>(path, { signal });
      return { rows: page.batches, next: page.next_cursor };
    },
    [functionId],
  );
  useNet(read.reload, readMs);
  return (
    <Section title="Gathered for one run">
      <ReadTable
        read={read}
        label="Batches"
        keyOf={({ id }) => id}
        columns={[
          { name: "Events", of: ({ events, events_max }) => `${count(events)} of ${count(events_max)}` },
          { name: "State", of: ({ state }) => <Status of={state} /> },
          {
            name: "First event",
            of: ({ first_event_id: id, first_at }) =>
              id && (
                <>
                  <a href={hrefOf(["events", id])}>
                    <Text of={id} in="code" />
                  </a>
                  <span class="under">
                    <When at={first_at} />
                  </span>
                </>
              ),
          },
          {
            name: "Begins at the latest",
            isNumber: true,
            of: ({ closes_at }) => dateTime(instantOf(closes_at) ?? 0),
          },
        ]}
        empty="No event waits"
      />
    </Section>
  );
}

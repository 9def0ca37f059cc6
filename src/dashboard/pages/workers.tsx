import type { Static } from "@sinclair/typebox";
import type { DeploymentShape } from "../../domain/engine/runs/pins/operations.ts";
import type { workerJson } from "../../domain/engine/workers/registration.ts";
import { rest } from "../lib/api.ts";
import { count, counted } from "../lib/format.ts";
import { listFunctions } from "../lib/functions.ts";
import { useFollowed, useLoaded } from "../lib/hooks.ts";
import { hrefOf } from "../lib/router.ts";
import { may } from "../lib/session.ts";
import { aboutRead, Page, Section, Text, Tile, When } from "../ui/basics.tsx";
import { type Column, ReadTable, Table } from "../ui/table.tsx";

export type WorkerData = ReturnType<typeof workerJson>;

export const listWorkers = async (signal: AbortSignal): Promise<WorkerData[]> =>
  (await rest<{ workers: WorkerData[] }>("/api/v1/workers", { signal })).workers;

type DeploymentData = Static<typeof DeploymentShape>;

const listDeployments = async (signal: AbortSignal): Promise<DeploymentData[]> =>
  (await rest<{ deployments: DeploymentData[] }>("/api/v1/deployments", { signal })).deployments;

const readMs = 10_000;
/** A worker's clock that is further off than this reports times that mislead. */
const clockOffMsMax = 1_000;
const functionsShown = 8;
/** Functions that are looked through for those that nobody serves. */
const functionsAsked = 500;

export function WorkersPage() {
  const read = useLoaded(listWorkers, []);
  const { value: workers = [], reload } = read;
  useFollowed(reload, { frames: "system.worker.>", everyMs: readMs });
  const busy = workers.reduce((sum, { active_jobs }) => sum + active_jobs, 0);
  const room = workers.reduce((sum, { max_concurrent }) => sum + max_concurrent, 0);
  return (
    <Page title="Workers" about={aboutRead(read, (all) => `${count(all.length)} with a recent heartbeat`)}>
      {workers.length > 0 && (
        <div class="tiles">
          <Tile name="Workers" value={count(workers.length)} note="connected" />
          <Tile name="Jobs" value={count(busy)} note="under way" />
          <Tile
            name="Room"
            value={count(Math.max(0, room - busy))}
            note={`of ${counted(room, "place")} free`}
            tone={room > 0 && busy >= room ? "warn" : ""}
          />
        </div>
      )}
      <ReadTable
        read={read}
        columns={columns}
        keyOf={({ id }) => id}
        empty="No worker is connected"
        docs="start"
        says="Runs wait until a worker of their function comes."
      />
      <Deployments workers={workers} />
      {may("functions:list") && read.value && <Unserved workers={workers} />}
    </Page>
  );
}

const columns: readonly Column<WorkerData>[] = [
  {
    name: "Worker",
    of: ({ id, hostname, clock_off_ms = 0 }) => (
      <>
        <Text of={id} />
        {hostname && <Text of={hostname} in="span" class="under" />}
        {Math.abs(clock_off_ms) > clockOffMsMax && (
          <span class="under warn">{`clock off by ${Math.round(clock_off_ms / 1_000)} s`}</span>
        )}
      </>
    ),
  },
  {
    name: "Functions",
    of: ({ function_ids }) => (
      <span class="triggers">
        {function_ids.slice(0, functionsShown).map((functionId) => (
          <Text key={functionId} of={functionId} href={hrefOf(["functions", functionId])} />
        ))}
        {function_ids.length > functionsShown && (
          <span class="faint">{`${function_ids.length - functionsShown} more`}</span>
        )}
      </span>
    ),
  },
  {
    name: "Jobs",
    isNumber: true,
    of: ({ active_jobs, max_concurrent }) => `${active_jobs} of ${max_concurrent}`,
  },
  {
    name: "SDK",
    of: ({ version, deployment, labels }) => (
      <>
        <Text of={[version.sdk, version.runtime].filter(Boolean).join(", ")} />
        {deployment && <Text of={`deployment ${deployment}`} in="span" class="under" />}
        {Object.entries(labels ?? {})
          .slice(0, functionsShown)
          .map(([name, value]) => (
            <Text key={name} of={`${name}=${value}`} in="span" class="under" />
          ))}
      </>
    ),
  },
  { name: "Transport", of: ({ transport }) => <Text of={transport} /> },
  { name: "Heartbeat", isNumber: true, of: ({ last_heartbeat }) => <When at={last_heartbeat} /> },
  { name: "Since", isNumber: true, of: ({ registered_at }) => <When at={registered_at} /> },
];

const deploymentColumns: readonly Column<DeploymentData>[] = [
  { name: "Deployment", of: ({ name }) => <Text of={name} /> },
  {
    name: "Workers",
    isNumber: true,
    of: ({ workers }) => <span class={workers === 0 ? "warn" : ""}>{count(workers)}</span>,
  },
  { name: "Since", of: ({ since }) => <When at={since} /> },
  {
    name: "Pinned runs",
    isNumber: true,
    of: ({ runs, runs_capped }) => `${count(runs)}${runs_capped ? "+" : ""}`,
  },
  {
    name: "Held",
    isNumber: true,
    of: ({ held }) => <span class={held > 0 ? "warn" : ""}>{count(held)}</span>,
  },
  { name: "Safe to stop", of: ({ safe_to_stop }) => (safe_to_stop ? "yes: no run is pinned to it" : "no") },
];

/** Builds that workers are of, or runs are pinned to; read again with the workers. */
function Deployments({ workers }: { workers: readonly WorkerData[] }) {
  const { value = [] } = useLoaded(listDeployments, [workers]);
  if (value.length === 0) return null;
  return (
    <Section title="Deployments">
      <Table rows={value} label="Deployments" keyOf={({ name }) => name} columns={deploymentColumns} />
    </Section>
  );
}

/** Active functions whose runs nobody would take. */
function Unserved({ workers }: { workers: readonly WorkerData[] }) {
  const served = new Set(workers.flatMap(({ function_ids }) => function_ids));
  const { value } = useLoaded((signal) => listFunctions({ limit: functionsAsked }, signal), []);
  const idle = (value?.functions ?? []).filter(
    ({ id, status, mode }) => status === "active" && mode !== "push" && !served.has(id),
  );
  if (idle.length === 0) return null;
  return (
    <Section title="Active functions that no worker serves">
      <ul class="plain-list">
        {idle.map(({ id }) => (
          <li key={id}>
            <Text of={id} href={hrefOf(["functions", id])} class="grows" />
            <a href={hrefOf(["runs"], { function: id, status: "waiting_for_capacity" })}>Runs that wait</a>
          </li>
        ))}
      </ul>
    </Section>
  );
}

import { hash } from "node:crypto";
import { Type } from "@sinclair/typebox";
import type { Bus } from "../../../bus/bus.ts";
import { type Caller, requireOperator } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { confirmMs, workerSilenceMsMax } from "../../../kit/limits.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { BucketFacts, DispatchFacts, SessionFacts } from "../dispatch/dispatcher.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import * as rows from "./rows.ts";

/** Rows of each kind in one answer. */
const capacityRowsMax = 1_000;

export interface NodesFilter {
  environmentId?: string | undefined;
  functionId?: string | undefined;
}

const NodesRequest = Type.Unsafe<NodesFilter>(
  Type.Object({ environmentId: Type.Optional(Type.String()), functionId: Type.Optional(Type.String()) }),
);

/** What a node answers of its own memory; at most `capacityRowsMax` rows of each kind. */
export interface NodeCapacity {
  nodeId: string;
  draining: boolean;
  sessions: Omit<SessionFacts, "functionIds">[];
  buckets: BucketFacts[];
}

const NodeReply = Type.Unsafe<NodeCapacity>(
  Type.Object({
    nodeId: Type.String(),
    draining: Type.Boolean(),
    sessions: Type.Array(
      Type.Object({
        environmentId: Type.String(),
        workerId: Type.String(),
        createdAt: Type.Number(),
        askedAt: Type.Number(),
        free: Type.Integer(),
        reserved: Type.Integer(),
      }),
    ),
    buckets: Type.Array(
      Type.Object({
        environmentId: Type.String(),
        functionId: Type.String(),
        createdAt: Type.Number(),
        lastDispatchedAt: Type.Optional(Type.Number()),
        reserved: Type.Integer(),
      }),
    ),
  }),
);

/** Asks every node, with this one; a node that does not answer in time is left out. */
type AskNodes = (filter: NodesFilter) => Promise<NodeCapacity[]>;

export interface AskNodesDeps extends Basics<"log" | "nodeId"> {
  bus: Bus;
  isDraining: () => boolean;
  facts: () => DispatchFacts;
}

/**
 * Sessions and credits live in the memory of the node that a worker asks: they are asked for over the bus.
 */
export function openAskNodes({ bus, log, nodeId, isDraining, facts }: AskNodesDeps): AskNodes {
  const own = ({ environmentId, functionId }: NodesFilter): NodeCapacity => {
    const { sessions, buckets } = facts();
    const inside = (one: { environmentId: string }) =>
      environmentId === undefined || one.environmentId === environmentId;
    return {
      nodeId,
      draining: isDraining(),
      sessions: sessions
        .filter((one) => inside(one) && (functionId === undefined || one.functionIds.includes(functionId)))
        .slice(0, capacityRowsMax)
        .map(({ functionIds: _, ...one }) => one),
      buckets: buckets
        .filter((one) => inside(one) && (functionId === undefined || one.functionId === functionId))
        .slice(0, capacityRowsMax),
    };
  };
  const requests = bus.requests("capacity.node", NodesRequest, NodeReply);
  requests.answer(async (filter) => own(filter));
  return async (filter) => {
    try {
      return await requests.askAll(filter, {
        timeoutMs: confirmMs,
        repliesMax: Math.max(1, bus.present().length),
      });
    } catch (error) {
      log.warn("capacity.nodes_unheard", { error });
      return [own(filter)];
    }
  };
}

const capacityRowsDefault = 100;

export interface CapacityInput {
  env?: string;
  function?: string;
  limit?: number;
}

export interface WorkerSession extends Omit<SessionFacts, "functionIds"> {
  id: string;
  nodeId: string;
  draining: boolean;
  /** When the worker is forgotten, without a heartbeat until then. */
  expiresAt: Instant;
  labels: Record<string, string>;
  transport: string;
}

export interface Credit {
  session: WorkerSession;
  /** From 0. */
  ordinal: number;
  /** The job it is used for. */
  job: rows.LeaseRow | undefined;
}

export interface CapacityBucket extends BucketFacts {
  laneId: string | undefined;
}

export interface Stat extends rows.StatRow {
  reserved: number;
}

/**
 * Views of what claims and dispatchers use; they change nothing. Every verb refuses callers who are not of
 * the platform.
 */
export type Capacity = ReturnType<typeof openCapacity>;

export interface CapacityDeps {
  store: Store;
  askNodes: AskNodes;
  serving: Pick<ConnectedWorkers, "refresh" | "served">;
}

/** `unserved`: no connected worker serves its function. */
export type QueuedRun = rows.QueueRow & { unserved: boolean };

const sessionId = (
  nodeId: string,
  { environmentId, workerId }: Pick<SessionFacts, "environmentId" | "workerId">,
): string => `sess_${hash("sha256", JSON.stringify([nodeId, environmentId, workerId]), "hex").slice(0, 24)}`;

const keyOf = (environmentId: string, id: string): string => `${environmentId}\n${id}`;

const isUnserved = (
  serving: Pick<ConnectedWorkers, "served">,
  { mode, environment_id, function_id }: rows.QueueRow,
): boolean => mode === "pull" && serving.served(environment_id)?.has(function_id) === false;

export function openCapacity({ store, askNodes, serving }: CapacityDeps) {
  async function sessionsOf({
    environmentId,
    functionId,
    limit,
  }: rows.CapacityFilter): Promise<WorkerSession[]> {
    const found = (await askNodes({ environmentId, functionId })).flatMap(({ nodeId, draining, sessions }) =>
      sessions.map((one) => ({ ...one, nodeId, draining, id: sessionId(nodeId, one) })),
    );
    const shown = found.sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, limit);
    const environments = [...new Set(shown.map((one) => one.environmentId))];
    const workers = environments.length === 0 ? [] : await rows.workersOf(store, environments);
    const registered = new Map(workers.map((row) => [keyOf(row.environment_id, row.id), row]));
    return shown.map((one) => {
      const row = registered.get(keyOf(one.environmentId, one.workerId));
      return {
        ...one,
        expiresAt: Math.max(one.askedAt, row?.last_heartbeat_at ?? 0) + workerSilenceMsMax,
        labels: row ? (JSON.parse(row.labels) as Record<string, string>) : {},
        transport: row?.transport ?? "rest",
      };
    });
  }

  return {
    async lanes(caller: Caller, input: CapacityInput): Promise<rows.LaneRow[]> {
      requireOperator(caller);
      return rows.listLanes(store, filterOf(input));
    },

    async queue(caller: Caller, input: CapacityInput): Promise<QueuedRun[]> {
      requireOperator(caller);
      const queued = await rows.listQueue(store, filterOf(input));
      await serving.refresh([...new Set(queued.map((row) => row.environment_id))]);
      return queued.map((row) => ({ ...row, unserved: isUnserved(serving, row) }));
    },

    async leases(caller: Caller, input: CapacityInput): Promise<rows.LeaseRow[]> {
      requireOperator(caller);
      return rows.listLeases(store, { ...filterOf(input), functionId: undefined });
    },

    async buckets(caller: Caller, input: CapacityInput): Promise<CapacityBucket[]> {
      requireOperator(caller);
      const filter = filterOf(input);
      const [nodes, lanes] = await Promise.all([askNodes(filter), rows.listLanes(store, filter)]);
      const byFunction = new Map<string, CapacityBucket>();
      for (const { environmentId, functionId, createdAt, lastDispatchedAt, reserved } of nodes.flatMap(
        (node) => node.buckets,
      )) {
        const key = keyOf(environmentId, functionId);
        const other = byFunction.get(key);
        byFunction.set(key, {
          environmentId,
          functionId,
          createdAt: Math.min(createdAt, other?.createdAt ?? createdAt),
          lastDispatchedAt: Math.max(lastDispatchedAt ?? 0, other?.lastDispatchedAt ?? 0) || undefined,
          reserved: reserved + (other?.reserved ?? 0),
          laneId: undefined,
        });
      }
      const limited = lanes.map((lane): CapacityBucket => {
        const { id, environment_id: environmentId, function_id: functionId } = lane;
        byFunction.delete(keyOf(environmentId, functionId));
        const times = { createdAt: lane.created_at, lastDispatchedAt: lane.last_used_at };
        return { environmentId, functionId, ...times, reserved: 0, laneId: id };
      });
      const sortKey = (one: CapacityBucket) =>
        keyOf(keyOf(one.environmentId, one.functionId), one.laneId ?? "");
      return [...byFunction.values(), ...limited]
        .sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1))
        .slice(0, filter.limit);
    },

    async sessions(caller: Caller, input: CapacityInput): Promise<WorkerSession[]> {
      requireOperator(caller);
      return sessionsOf(filterOf(input));
    },

    async credits(caller: Caller, input: CapacityInput): Promise<Credit[]> {
      requireOperator(caller);
      const filter = { ...filterOf(input), functionId: undefined };
      const [sessions, leases] = await Promise.all([
        sessionsOf({ ...filter, limit: capacityRowsMax }),
        rows.listLeases(store, { ...filter, limit: capacityRowsMax }),
      ]);
      const held = Map.groupBy(leases, (lease) => keyOf(lease.environment_id, lease.worker_id ?? ""));
      const credits: Credit[] = [];
      // Leases of a worker that several nodes know are shown at the node that it polled last.
      const latest = new Map<string, WorkerSession>();
      for (const session of sessions) {
        const key = keyOf(session.environmentId, session.workerId);
        if ((latest.get(key)?.askedAt ?? -1) < session.askedAt) latest.set(key, session);
      }
      for (const session of sessions) {
        const key = keyOf(session.environmentId, session.workerId);
        const jobs = latest.get(key) === session ? (held.get(key) ?? []) : [];
        for (let ordinal = 0; ordinal < jobs.length + session.free; ordinal++)
          credits.push({ session, ordinal, job: jobs[ordinal] });
      }
      return credits.slice(0, filter.limit);
    },

    async stats(caller: Caller): Promise<Stat[]> {
      requireOperator(caller);
      const [nodes, counted] = await Promise.all([askNodes({}), rows.countAll(store)]);
      const reserved = new Map<string, number>();
      for (const bucket of nodes.flatMap((node) => node.buckets)) {
        const key = keyOf(bucket.environmentId, bucket.functionId);
        reserved.set(key, (reserved.get(key) ?? 0) + bucket.reserved);
      }
      return counted.map((row) => ({
        ...row,
        reserved: reserved.get(keyOf(row.environment_id, row.function_id)) ?? 0,
      }));
    },
  };
}

const filterOf = ({ env, function: functionId, limit }: CapacityInput): rows.CapacityFilter => ({
  environmentId: env || undefined,
  functionId: functionId || undefined,
  limit: limit === undefined || limit <= 0 ? capacityRowsDefault : Math.min(limit, capacityRowsMax),
});

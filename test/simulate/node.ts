import { type EnginePart, openEngine } from "../../src/app/engine.ts";
import { openOutboxPart } from "../../src/app/outbox.ts";
import { foldParts, type Host } from "../../src/app/part.ts";
import { openProjectionsPart, type QueryPart } from "../../src/app/projections.ts";
import { openFlowPart, openRecord, openUsagePart } from "../../src/app/record.ts";
import { openSchemasPart, openStreamsPart } from "../../src/app/streams.ts";
import type { Bus } from "../../src/bus/bus.ts";
import { openListChanges } from "../../src/domain/realtime/pubsub/changes.ts";
import { openFrames } from "../../src/domain/realtime/pubsub/frames.ts";
import type { Ids } from "../../src/kit/ids.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import { type Loop, loop } from "../../src/kit/loop.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { noWatch } from "../../src/kit/watch.ts";
import { parseSettings } from "../../src/settings/settings.ts";
import type { Store } from "../../src/store/store.ts";
import type { ProcessTime } from "./time.ts";

export interface SimulatedNode {
  id: string;
  process: ProcessTime;
  engine: EnginePart;
  operations: readonly Operation[];
}

export interface NodeOptions {
  id: string;
  process: ProcessTime;
  store: Store;
  bus: Bus;
  ids: Ids;
  leaseMs: number;
  /** Whether this node does what one node does for all; `still` as the row says it that a leader's transaction reads. */
  leads: (still: boolean) => boolean;
  log?: Log;
  /** Streams and projections, in worlds that have them. */
  hasFolds: boolean;
}

/** No simulated function has secrets or an endpoint. */
/** Nobody asks by SQL here, and no projection is folded by it. */
const noSql = { databases: {}, queries: {} } as Pick<QueryPart, "databases" | "queries">;

const noKeyring = {
  seal: (_place: string, text: string) => text,
  unseal: async (_place: string, sealed: string) => sealed,
  writeSealed: () => Promise.reject(new Error("nothing is sealed in a simulation")),
  current: () => ({ id: "none", secret: "none" }),
};

/** One node of the product, put together as `app/parts.ts` does it, without the edge. */
export function startNode(options: NodeOptions): SimulatedNode {
  const { id, process, store, bus, ids } = options;
  const { clock } = process;
  const log = options.log ?? silentLog;
  const loops = new Map<string, Loop>();
  const parsed = parseSettings([], {});
  if (!parsed.ok) throw new Error(parsed.errors.join("\n"));
  const frames = openFrames({ bus, clock, log, self: id });
  const host: Host = {
    config: {
      ...parsed.config,
      leaseMs: options.leaseMs,
      pollHoldMs: 2_000,
      drainMs: 0,
      eventRetentionDays: 0,
      runRetentionDays: 0,
      pushAllowPrivate: [],
      busPayloadMax: 1024 * 1024,
      outboxAttempts: 10,
    },
    ...{ store, clock, ids, log, bus, watch: noWatch, nodeId: id, frames },
    changes: openListChanges({ clock, frames }),
    // Nobody deletes an environment here.
    shareEnvironment: async () => {},
    knowsTime: () => true,
    isDraining: () => false,
  };
  const outbox = openOutboxPart(host);
  const schemasPart = openSchemasPart(host);
  const engine = openEngine(host, {
    ...{ keyring: noKeyring, outbox, ...schemasPart },
    ...{ flow: openFlowPart(host).flow, usage: openUsagePart(host).usage },
    may: async () => true,
    emitRights: async () => undefined,
  });
  const folded = options.hasFolds
    ? [
        openStreamsPart(host, engine, schemasPart, async () => true),
        openProjectionsPart(host, { ...engine, ...noSql }),
      ]
    : [];
  const record = openRecord(host, {
    engine,
    parts: [engine, outbox, ...folded],
    forgetCaptures: async () => {},
  });
  const { operations, loops: own, duties } = foldParts([engine, record, outbox, ...folded]);
  const loopHost = {
    clock,
    onError: (name: string, error: unknown) => log.debug("loop.failed", { node: id, loop: name, error }),
  };
  for (const one of own) loops.set(one.name, loop(loopHost, one));
  for (const duty of duties) {
    const { name, about, everyMs, waker } = duty;
    const tick = async () => {
      if (!options.leads(false)) return;
      return duty.tick((work) =>
        store.write((session) => {
          if (!options.leads(true)) throw new Error(`${id} no longer leads`);
          return work(session);
        }),
      );
    };
    loops.set(name, loop(loopHost, { name, about, everyMs, tick, ...(waker && { waker }) }));
  }
  for (const one of loops.values()) one.start();
  return { id, process, engine, operations };
}

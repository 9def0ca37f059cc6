import type { Bus } from "../../src/bus/bus.ts";
import { openFrames } from "../../src/domain/realtime/pubsub/frames.ts";
import { type EnginePart, openEngine } from "../../src/engine.ts";
import type { Ids } from "../../src/kit/ids.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import { type Loop, loop } from "../../src/kit/loop.ts";
import { noWatch } from "../../src/kit/watch.ts";
import type { Store } from "../../src/store/store.ts";
import type { ProcessTime } from "./time.ts";

export interface SimulatedNode {
  id: string;
  process: ProcessTime;
  engine: EnginePart;
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
}

/** No simulated function has secrets or an endpoint. */
const noKeyring = {
  seal: (_place: string, text: string) => text,
  unseal: async (_place: string, sealed: string) => sealed,
  isCurrent: async () => true,
  refresh: async () => {},
  current: () => ({ id: "none", secret: "none" }),
};

/** One node of the product, put together as `server.ts` does it, without the edge. */
export function startNode(options: NodeOptions): SimulatedNode {
  const { id, process, store, bus, ids } = options;
  const { clock } = process;
  const log = options.log ?? silentLog;
  const loops = new Map<string, Loop>();
  const engine = openEngine({
    config: {
      leaseMs: options.leaseMs,
      pollHoldMs: 2_000,
      drainMs: 0,
      capacityAdmission: true,
      eventRetentionDays: 0,
      runRetentionDays: 0,
      pushTimeoutMs: 10_000,
      pushAllowPrivate: [],
      dev: false,
      natsMirror: false,
      busPayloadMax: 1024 * 1024,
      outboxAttempts: 10,
    },
    keyring: noKeyring,
    // Nobody deletes an environment here.
    tenancy: { shareEnvironment: async () => {} },
    store,
    clock,
    ids,
    log,
    frames: openFrames({ bus, clock, log, self: id }),
    watch: noWatch,
    bus,
    tellOthers: (lanes) => bus.hint("dispatch", JSON.stringify({ from: id, lanes })),
    knowsTime: () => true,
    wakeLoop: (name, inMs) => loops.get(name)?.wakeIn(inMs),
    wake: (name) => loops.get(name)?.wake(),
    wakeBy: (at) => loops.get("runs.wake")?.wakeIn(at - clock.now()),
    nodeId: id,
    isDraining: () => false,
  });
  bus.onHint("dispatch", (payload) => {
    const { from, lanes } = JSON.parse(new TextDecoder().decode(payload));
    if (from !== id) engine.queuedElsewhere(lanes);
  });
  const host = {
    clock,
    onError: (name: string, error: unknown) => log.debug("loop.failed", { node: id, loop: name, error }),
  };
  for (const one of engine.loops) loops.set(one.name, loop(host, one));
  for (const duty of engine.duties) {
    const { name, about, everyMs } = duty;
    const tick = async () => {
      if (!options.leads(false)) return;
      return duty.tick((work) =>
        store.write((session) => {
          if (!options.leads(true)) throw new Error(`${id} no longer leads`);
          return work(session);
        }),
      );
    };
    loops.set(name, loop(host, { name, about, everyMs, tick }));
  }
  for (const one of loops.values()) one.start();
  return { id, process, engine };
}

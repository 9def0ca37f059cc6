import { type Static, Type } from "@sinclair/typebox";
import type { Bus } from "../../../bus/bus.ts";
import { stated } from "../../../kit/cases.ts";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { confirmMs } from "../../../kit/limits.ts";
import type { Basics } from "../../../store/store.ts";
import { capturedMax, capturedOrgsMax, capturedReplyBytesMax, captureMs } from "./limits.ts";
import { CapturedRequest, capturedParts, type Redact, type SeenRequest } from "./rules.ts";

export type Captured = Static<typeof CapturedRequest>;

export type CapturedRequests = ReturnType<typeof openCapturedRequests>;

export interface CapturedRequestsDeps extends Basics<"clock" | "log" | "nodeId"> {
  bus: Bus;
  redact: Redact;
  statusOf: (outcome: string) => number;
}

const Ask = Type.Object({ orgId: Type.String(), clears: Type.Boolean() });
const Reply = Type.Array(CapturedRequest);

interface CaptureRing {
  until: Instant;
  /** Oldest first. */
  requests: Captured[];
}

export function openCapturedRequests(deps: CapturedRequestsDeps) {
  const { bus, clock, log, nodeId, redact, statusOf } = deps;
  /** By org, in the order in which they were last asked for. */
  const rings = new Map<string, CaptureRing>();

  function ringOf(orgId: string): CaptureRing {
    const ring = rings.get(orgId) ?? { until: 0, requests: [] };
    ring.until = clock.now() + captureMs;
    rings.delete(orgId);
    if (rings.size >= capturedOrgsMax) rings.delete(rings.keys().next().value!);
    rings.set(orgId, ring);
    return ring;
  }

  function capture(ring: CaptureRing, seen: SeenRequest): void {
    const { operation, caller, environmentId, requestId, outcome, ms, message } = seen;
    if (ring.requests.length >= capturedMax) ring.requests.shift();
    const { body, ...parts } = capturedParts(seen, redact);
    ring.requests.push({
      ...{ request_id: requestId, node_id: nodeId, at: rfc3339(clock.now()) },
      ...parts,
      ...{ operation: operation.name, caller_kind: caller.kind, caller_id: caller.id },
      ...(environmentId !== "" && { environment_id: environmentId }),
      ...{ status: statusOf(outcome), outcome, duration_ms: Math.round(ms * 10) / 10 },
      ...stated({ message, body }),
    });
  }

  /** The newest of this node that fit into one message. */
  function own({ orgId, clears }: Static<typeof Ask>): Captured[] {
    if (clears && !rings.has(orgId)) return [];
    const ring = ringOf(orgId);
    if (clears) ring.requests = [];
    const fitting: Captured[] = [];
    let bytes = 0;
    for (const one of ring.requests.toReversed()) {
      bytes += Buffer.byteLength(JSON.stringify(one));
      if (bytes > capturedReplyBytesMax) break;
      fitting.push(one);
    }
    return fitting;
  }

  const asks = bus.requests("debug.requests", Ask, Reply);
  asks.answer(async (ask) => own(ask));

  async function askAll(ask: Static<typeof Ask>): Promise<Captured[]> {
    try {
      const repliesMax = Math.max(1, bus.present().length);
      return (await asks.askAll(ask, { timeoutMs: confirmMs, repliesMax })).flat();
    } catch (error) {
      log.warn("requests.nodes_unheard", { error });
      return own(ask);
    }
  }

  return {
    /** Costs nothing until the requests of the caller's org are asked for. */
    observe(seen: SeenRequest) {
      if (rings.size === 0) return;
      const { orgId } = seen.caller;
      const ring = rings.get(orgId);
      if (!ring || seen.operation.name.startsWith("debug.")) return;
      if (ring.until <= clock.now()) rings.delete(orgId);
      else capture(ring, seen);
    },

    /** Newest first, of all nodes; from now on they capture the org's requests for a while. */
    async list(orgId: string): Promise<{ requests: Captured[]; until: Instant }> {
      const requests = await askAll({ orgId, clears: false });
      requests.sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0));
      return { requests: requests.slice(0, capturedMax), until: clock.now() + captureMs };
    },

    /** Forgets them on all nodes, which go on capturing. */
    async clear(orgId: string) {
      await askAll({ orgId, clears: true });
    },
  };
}

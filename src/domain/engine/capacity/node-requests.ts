import type { Bus } from "../../../bus/bus.ts";
import { capacityRowsMax, confirmMs } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { BucketFacts, DispatchFacts, SessionFacts } from "../dispatch/facts.ts";

export interface NodesFilter {
  environmentId?: string | undefined;
  functionId?: string | undefined;
}

/** What a node answers of its own memory; at most `limits.capacityRowsMax` rows of each kind. */
export interface NodeCapacity {
  nodeId: string;
  draining: boolean;
  sessions: Omit<SessionFacts, "functionIds">[];
  buckets: BucketFacts[];
}

/** Asks every node, with this one; a node that does not answer in time is left out. */
export type AskNodes = (filter: NodesFilter) => Promise<NodeCapacity[]>;

export interface AskNodesDeps {
  bus: Bus;
  log: Log;
  nodeId: string;
  isDraining: () => boolean;
  facts: () => DispatchFacts;
}

const subject = "capacity.node";
const decoder = new TextDecoder();

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
  bus.onRequest(subject, async (payload) =>
    JSON.stringify(own(JSON.parse(decoder.decode(payload)) as NodesFilter)),
  );
  return async (filter) => {
    try {
      const replies = await bus.requestMany(subject, JSON.stringify(filter), {
        timeoutMs: confirmMs,
        repliesMax: Math.max(1, bus.present().length),
      });
      return replies.map((reply) => JSON.parse(decoder.decode(reply)) as NodeCapacity);
    } catch (error) {
      log.warn("capacity.nodes_unheard", { error });
      return [own(filter)];
    }
  };
}

import { Type } from "@sinclair/typebox";
import type { Bus } from "../../../bus/bus.ts";
import { confirmMs } from "../../../kit/limits.ts";
import type { Basics } from "../../../store/store.ts";
import type { BucketFacts, DispatchFacts, SessionFacts } from "../dispatch/facts.ts";

/** Rows of each kind in one answer. */
export const capacityRowsMax = 1_000;

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
export type AskNodes = (filter: NodesFilter) => Promise<NodeCapacity[]>;

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

import { all, count, type Message, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { CausalityCalls, CauseEdge, CauseNode } from "./causality-types.ts";

const readThing = (message: Message): CauseNode => ({
  ...{ kind: message.kind as CauseNode["kind"], id: text(message.id), name: text(message.name) },
  ...{ status: text(message.status), at: text(message.at), depth: count(message.depth) },
  ...(message.entityId !== undefined && {
    entity: { id: text(message.entityId), version: count(message.entityVersion) },
  }),
});

const readLink = (message: Message): CauseEdge => ({
  cause: { kind: message.causeKind as CauseNode["kind"], id: text(message.causeId) },
  effect: { kind: message.effectKind as CauseNode["kind"], id: text(message.effectId) },
  relation: message.relation as CauseEdge["relation"],
});

export function causalityCalls(transport: Transport): CausalityCalls {
  const rpc = (method: string, message: unknown, options = safe) =>
    transport.rpc<Message>(`CausalityService/${method}`, message, options);
  return {
    async get(kind, id, options = {}) {
      const answer = await rpc("GetCausality", { kind, id, ...options });
      return {
        things: all(answer.things, readThing),
        links: all(answer.links, readLink),
        truncated: answer.truncated === true,
        hidden: count(answer.hidden),
      };
    },
    async cancelSubtree(runId, { reason = "" } = {}) {
      const answer = await rpc("CancelSubtree", { runId, reason }, once);
      return {
        cancelled: (answer.cancelled ?? []) as string[],
        over: count(answer.over),
        hidden: count(answer.hidden),
        truncated: answer.truncated === true,
      };
    },
  };
}

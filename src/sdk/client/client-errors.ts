import type { ErrorCalls, ErrorGroup } from "../wire/error-types.ts";
import { instant, type Message } from "../wire/read.ts";
import { safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import { count, text } from "./entity-messages.ts";

const readGroup = (message: Message): ErrorGroup => ({
  id: text(message.id),
  functionId: text(message.functionId),
  code: text(message.code),
  message: text(message.message),
  frame: text(message.frame),
  count: count(message.count),
  firstSeenAt: text(message.firstSeenAt),
  lastSeenAt: text(message.lastSeenAt),
  sampleRunId: text(message.sampleRunId),
});

export const errorCalls = (transport: Transport): ErrorCalls => ({
  async list({ since, ...options } = {}) {
    const message = { ...options, ...(since !== undefined && { since: instant(since) }) };
    const answer = await transport.rpc<Message>("ErrorService/ListErrorGroups", message, safe);
    const groups = (answer.groups ?? []) as Message[];
    return { groups: groups.map(readGroup), nextCursor: text(answer.nextCursor) };
  },
  get: async (id) => readGroup(await transport.rpc<Message>("ErrorService/GetErrorGroup", { id }, safe)),
});

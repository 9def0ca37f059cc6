import type { ErrorCalls, ErrorGroup } from "../wire/error-types.ts";
import { all, fieldsOf, instant, type Message, text } from "../wire/read.ts";
import { safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";

const readGroup: (message: Message) => ErrorGroup = fieldsOf<ErrorGroup>()({
  texts: ["id", "functionId", "code", "message", "frame", "firstSeenAt", "lastSeenAt", "sampleRunId"],
  counts: ["count"],
});

export const errorCalls = (transport: Transport): ErrorCalls => ({
  async list({ since, ...options } = {}) {
    const message = { ...options, ...(since !== undefined && { since: instant(since) }) };
    const answer = await transport.rpc<Message>("ErrorService/ListErrorGroups", message, safe);
    return { groups: all(answer.groups, readGroup), nextCursor: text(answer.nextCursor) };
  },
  get: async (id) => readGroup(await transport.rpc<Message>("ErrorService/GetErrorGroup", { id }, safe)),
});

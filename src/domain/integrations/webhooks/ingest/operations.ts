import { Type } from "@sinclair/typebox";
import { invalid } from "../../../../kit/fault.ts";
import { type Operation, unary } from "../../../../kit/operation.ts";
import type { Webhooks } from "../service.ts";
import { receivedJson } from "../wire.ts";

const text = Type.String();

const headersOf = (headers: Headers): Record<string, string> => {
  const found: Record<string, string> = Object.create(null);
  headers.forEach((value, name) => {
    found[name.toLowerCase()] = value;
  });
  return { ...found };
};

const tokenIn = (query: URLSearchParams): string => query.get("token") ?? "";

/** What providers call. */
export const ingestOperations = ({ ingest }: Webhooks): Operation[] => [
  unary({
    name: "webhooks.receive",
    action: null,
    scope: "none",
    isRoutine: true,
    summary: "Takes a provider's request to a source, whose ingest token it carries, and emits its event.",
    input: Type.Object({
      id: Type.String({ maxLength: 200 }),
      query: text,
      headers: Type.Record(text, text),
      body: Type.Uint8Array(),
    }),
    output: Type.Object({
      status: text,
      event_id: text,
      delivery_id: text,
      duplicate: Type.Optional(Type.Boolean()),
      challenge: Type.Optional(text),
    }),
    rest: {
      route: "POST /api/v1/webhooks/{id}",
      raw: true,
      query: Type.Object({ token: text }),
      body: Type.Any({ description: "Whatever the provider sends: JSON, a form or text." }),
      decode: ({ params, query, headers, body }) => {
        if (!(body instanceof Uint8Array)) throw invalid("body", "must not be empty");
        return { id: params.id, query: query.toString(), headers: headersOf(headers), body };
      },
    },
    admits: ({ params, query }) => ingest.admit(params.id ?? "", tokenIn(query)),
    onBodyTooLarge: ({ id = "" }, _call, fault) => ingest.tooLarge(id, fault),
    handle: async ({ id, query, headers, body }) =>
      receivedJson(await ingest.receive(id, { bytes: body, headers, query })),
  }),
];

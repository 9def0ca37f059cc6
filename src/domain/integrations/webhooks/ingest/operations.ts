import { Type } from "@sinclair/typebox";
import { described } from "../../../../kit/described.ts";
import { invalid } from "../../../../kit/fault.ts";
import { type Operation, unary } from "../../../../kit/operation.ts";
import type { Received, Webhooks } from "../service.ts";
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
      id: Type.String({ maxLength: 200, description: "Id of the source (`whs_…`)." }),
      query: text,
      headers: Type.Record(text, text),
      body: Type.Uint8Array(),
    }),
    output: Type.Object({
      status: described(text, "Always `accepted`: what is refused is an error."),
      event_id: text,
      delivery_id: described(text, "Id of the delivery (`whd_…`)."),
      duplicate: Type.Optional(Type.Boolean()),
      challenge: Type.Optional(
        described(text, "What a provider asked to be answered, of a URL's verification."),
      ),
    }),
    writes: {
      log: "events",
      positionOf: ({ position }: Received) => position,
      environmentOf: ({ environmentId }: Received) => environmentId,
    },
    rest: {
      route: "POST /api/v1/webhooks/{id}",
      raw: true,
      query: Type.Object({ token: described(text, "Ingest token of the source (`ifwh_…`).") }),
      body: Type.Any({ description: "Whatever the provider sends: JSON, a form or text." }),
      decode: ({ params, query, headers, body }) => {
        if (!(body instanceof Uint8Array)) throw invalid("body", "must not be empty");
        return { id: params.id, query: query.toString(), headers: headersOf(headers), body };
      },
      json: receivedJson,
    },
    special: {
      admits: ({ params, query }) => ingest.admit(params.id ?? "", tokenIn(query)),
      onBodyTooLarge: ({ params: { id = "" } }, _call, fault) => ingest.tooLarge(id, fault),
    },
    handle: ({ id, query, headers, body }, { traceparent }) =>
      ingest.receive(id, { bytes: body, headers, query }, traceparent),
  }),
];

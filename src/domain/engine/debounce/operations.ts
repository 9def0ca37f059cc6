import { Type } from "@sinclair/typebox";
import { thingsOf } from "../../../gate/things.ts";
import { recordJson } from "../../../kit/cases.ts";
import { described, shape } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { listed, type RestRequest, unary } from "../../../kit/operation.ts";

import type { Debounce, DebounceEntry } from "./service.ts";

const text = Type.String();
const instant = Type.String({ format: "date-time" });

export const EntryShape = Type.Object({
  environment_id: text,
  function_id: text,
  debounce_key: text,
  key_kind: Type.Optional(
    described(
      Type.Union([Type.Literal("text"), Type.Literal("value"), Type.Literal("none")]),
      "What the key is in the event: a text, another value, or none. Left out of an entry that takes all of them.",
    ),
  ),
  event_id: text,
  function_version: Type.Integer(),
  period_ms: Type.Integer(),
  armed_at: instant,
  fires_at: described(instant, "When the run starts unless another event comes, RFC 3339."),
});

const entryJson = (row: DebounceEntry) => ({
  ...recordJson(row, "environment_id function_id debounce_key key_kind event_id function_version period_ms"),
  ...recordJson(row, "armed_at fires_at"),
});

/** Unpadded base64url of well-formed UTF-8. */
function keyOfPath(key: string): string {
  const bytes = /^[A-Za-z0-9_-]+$/.test(key) ? Buffer.from(key, "base64url") : Buffer.alloc(0);
  const plain = bytes.toString("utf8");
  // A text that encodes to something else than was sent was no valid encoding.
  if (bytes.length === 0 || bytes.toString("base64url") !== key || !Buffer.from(plain).equals(bytes))
    throw invalid("key", "must be base64url without padding");
  return plain;
}

const decode = ({ params }: RestRequest) => {
  for (const name of ["envID", "fnID", "key"])
    if (!params[name]) throw invalid(name, "is missing in the path");
  return params;
};
const path = "DELETE /api/v1/debounce/entries";

export const debounceOperations = (debounce: Debounce) => [
  unary({
    name: "debounce.list",
    action: "functions:read",
    platformAction: "platform:tenants:read",
    summary: "Armed debounce entries of the environment, by function.",
    reads: true,
    input: Type.Object({ limit: Type.Optional(Type.Integer()) }),
    output: Type.Object({
      entries: Type.Array(EntryShape, { description: "Entries that wait, by function." }),
      count: shape.count("How many entries are listed."),
    }),
    rest: "GET /api/v1/debounce/entries",
    lists: listed(({ function_id }: { function_id: string }) => [function_id], {
      under: "entries",
      shows: ({ function_id: id }: { function_id: string }) => thingsOf("function", id),
    }),
    async handle(input, call) {
      const entries = await debounce.list(call.environmentId, input.limit);
      return { entries: entries.map(entryJson), count: entries.length };
    },
  }),
  unary({
    name: "debounce.cancel",
    action: "functions:invoke",
    platformAction: "platform:tenants:manage",
    summary: "Cancels an armed debounce entry: its event starts no run. Absent ones count as cancelled.",
    input: Type.Object({
      envID: text,
      fnID: described(text, "Id of the function."),
      key: described(
        text,
        "Lane of the entry: unpadded base64url of its `debounce_key`; entries of all kinds that have it go.",
      ),
    }),
    about: ({ fnID }: { fnID: string }) => [fnID],
    environmentOf: ({ envID }: { envID: string }) => envID,
    special: { crossesOrgs: true },
    // Paths that lack a segment are bad requests, not unknown routes.
    rest: [`${path}/{envID}/{fnID}/{key}`, `${path}/{envID}/{fnID}`, `${path}/{envID}`, path].map(
      (route) => ({
        route,
        decode,
        status: 204,
        encode: () => ({ status: 204 }),
      }),
    ),
    async handle({ envID: environmentId, fnID: functionId, key }, call) {
      await debounce.cancel(
        { environmentId, functionId, key: keyOfPath(key) },
        call.caller,
        call.environmentId,
      );
    },
  }),
];

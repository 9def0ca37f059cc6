import { type TString, Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { shape } from "../../../kit/described.ts";
import { type Operation, type Thing, unary } from "../../../kit/operation.ts";
import type { KeyRevision, Kv } from "./service.ts";

interface RevisionsNames {
  ofKey: { bucket: TString; key: TString };
  aboutKey: (named: { bucket: string; key: string }) => readonly (string | Thing)[];
}

const revisionJson = ({ revision, operation, bytes, created_at, expires_at }: KeyRevision) => ({
  ...{ revision, operation, bytes, created_at: rfc3339(created_at) },
  ...(expires_at !== null && { expires_at: rfc3339(expires_at) }),
});

export const RevisionsShape = Type.Object({
  revisions: Type.Array(
    Type.Object({
      revision: Type.Integer(),
      operation: Type.Union([Type.Literal("put"), Type.Literal("delete")], {
        description: "What was done to the key; a deletion is kept for a day.",
      }),
      bytes: shape.count("Bytes of the value; 0 of a deletion."),
      created_at: Type.String({ format: "date-time" }),
      expires_at: Type.Optional(Type.String({ format: "date-time" })),
    }),
    { description: "At most as many values as the bucket's `history`." },
  ),
});

/** `ofKey` is how the others name a key, `aboutKey` what policies call it. */
export const revisionsOperation = (
  kv: Pick<Kv, "revisions">,
  { ofKey, aboutKey }: RevisionsNames,
): Operation =>
  unary({
    name: "kv.revisions",
    action: "secrets:read",
    reads: true,
    summary: "The revisions of a key that are kept, newest first, without their values.",
    input: Type.Object(ofKey),
    about: aboutKey,
    output: RevisionsShape,
    rest: "GET /api/v1/kv/buckets/{bucket}/revisions/{key...}",
    handle: async ({ bucket, key }, call) => ({
      revisions: (await kv.revisions(call.environmentId, bucket, key)).map(revisionJson),
    }),
  });

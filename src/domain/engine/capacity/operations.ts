import { type Static, type TSchema, Type } from "@sinclair/typebox";
import { maybe } from "../../../kit/described.ts";
import { type Call, type Operation, unary } from "../../../kit/operation.ts";
import type { Capacity } from "./service.ts";
import {
  BucketSchema,
  CreditSchema,
  LaneSchema,
  LeaseSchema,
  QueuedSchema,
  SessionSchema,
  StatSchema,
  toBucket,
  toCredit,
  toLane,
  toLease,
  toQueue,
  toSession,
  toStat,
} from "./wire.ts";

const Query = Type.Object({
  env: Type.Optional(Type.String()),
  function: maybe.text("Id of a function; all when left out."),
  limit: Type.Optional(Type.Integer()),
});

/** One of seven views: an array of rows. The service refuses callers who are not of the platform. */
const view = <S extends TSchema>(
  name: string,
  summary: string,
  row: S,
  handle: (input: Static<typeof Query>, call: Call) => Promise<Static<S>[]>,
): Operation =>
  unary({
    name: `capacity.${name}`,
    action: "authenticated",
    // Every role of the platform holds it.
    platformAction: "platform:tenants:read",
    scope: "none",
    reads: true,
    summary,
    input: Query,
    output: Type.Array(row),
    rest: `GET /api/v1/capacity/${name}`,
    handle,
  });

export const capacityOperations = (capacity: Capacity): Operation[] => [
  view("lanes", "Concurrency lanes with their limits and leases.", LaneSchema, async (input, { caller }) =>
    (await capacity.lanes(caller, input)).map(toLane),
  ),
  view(
    "queue",
    "Runs that wait for a worker or for room in their lane.",
    QueuedSchema,
    async (input, { caller }) => toQueue(await capacity.queue(caller, input)),
  ),
  view(
    "leases",
    "Runs that workers hold, with the hashes of their lease tokens.",
    LeaseSchema,
    async (input, { caller }) => (await capacity.leases(caller, input)).map(toLease),
  ),
  view("buckets", "Queues by function, with how many runs wait.", BucketSchema, async (input, { caller }) =>
    (await capacity.buckets(caller, input)).map(toBucket),
  ),
  view("sessions", "Workers that ask for jobs, by node.", SessionSchema, async (input, { caller }) =>
    (await capacity.sessions(caller, input)).map(toSession),
  ),
  view(
    "credits",
    "Places for one job each at workers: free ones and used ones.",
    CreditSchema,
    async (input, { caller }) => (await capacity.credits(caller, input)).map(toCredit),
  ),
  view(
    "stats",
    "Leases and queues of every function of all tenants.",
    StatSchema,
    async (_, { caller, receivedAt }) => (await capacity.stats(caller)).map((row) => toStat(row, receivedAt)),
  ),
];

import { sequenceWaitMsMax } from "../kit/limits.ts";
import { minSequenceHeader, minSequenceQuery, sequenceHeader } from "../kit/sequence.ts";
import { faultCatalogue } from "./fault-encoding.ts";
import type { JsonSchema } from "./field-words.ts";
import { socketPath } from "./sockets.ts";

const text = { type: "string" };
const json = (name: string) => ({ "application/json": { schema: { $ref: `#/components/schemas/${name}` } } });

const notFound = "run run_01kf3m8q4v7x2n9t5c6b1d0e8g not found";

/** What operations refer to. */
export const sharedParts = {
  securitySchemes: {
    bearer: { type: "http", scheme: "bearer", description: "An API key: `Authorization: Bearer ifkey_…`." },
    cookie: { type: "apiKey", in: "cookie", name: "svc_dashboard_token", description: "Set by the login." },
    token: {
      type: "apiKey",
      in: "query",
      name: "token",
      description: "An API key where headers cannot be set; may appear in logs.",
    },
  },
  parameters: {
    Environment: {
      name: "X-Svc-Environment",
      in: "header",
      required: false,
      description: "Id or name of the environment. API keys always use their own.",
      schema: text,
      example: "production",
    },
    MinSequence: {
      name: minSequenceHeader,
      in: "header",
      required: false,
      description:
        `What \`${sequenceHeader}\` answered: the call waits until what it reads has come there, ` +
        `at most ${sequenceWaitMsMax} ms, then \`unavailable\`. In a query: \`${minSequenceQuery}\`.`,
      schema: text,
      example: "1.4711",
    },
  },
  headers: {
    Sequence: {
      description: "Where what was written stands: `{epoch}.{position}`; of a topic's log `.topics` follows.",
      schema: text,
      example: "1.4711",
    },
  },
  responses: {
    Error: { description: "Refused or failed: see 'Errors' above.", content: json("Error") },
    ConnectError: { description: "Refused or failed: see 'Errors' above.", content: json("ConnectError") },
  },
};

/** The bodies of errors. */
export const errorSchemas: Record<string, JsonSchema> = {
  Error: {
    type: "object",
    description: "Why a REST call was refused or failed.",
    required: ["error", "message", "code"],
    properties: {
      error: { ...text, description: "The message, or a word that clients compare (`STALE_EXECUTION`)." },
      message: { ...text, description: "For people: what is wrong, where, and what is allowed." },
      code: {
        ...text,
        description: "One of `x-svc-errors`, or a narrower word in snake_case that the operation names.",
      },
      field: { ...text, description: "The input field at fault: `triggers[0].event`." },
    },
    examples: [{ error: notFound, message: notFound, code: "not_found" }],
  },
  ConnectError: {
    type: "object",
    description: "Why an RPC was refused or failed.",
    required: ["code", "message"],
    properties: {
      code: {
        ...text,
        enum: [...new Set(faultCatalogue.map(({ connect }) => connect))],
        description: "A code of the Connect protocol.",
      },
      message: { ...text, description: "For people: what is wrong, where, and what is allowed." },
    },
    examples: [{ code: "not_found", message: notFound }],
  },
};

const errorRows = faultCatalogue
  .map(
    ({ code, status, connect, connect_status, meaning }) =>
      `| \`${code}\` | ${status} | \`${connect}\` (${connect_status}) | ${meaning} |`,
  )
  .join("\n");

/** What holds for all operations, as a reader of the document needs it. */
export const introduction = `Event-driven workflows. REST stands under /api/v1 in snake_case, Connect RPC under \
/svc.v1.… in camelCase (snake_case is read as well): a unary RPC is a POST of JSON.

## Consistent reads

What writes to a log answers \`${sequenceHeader}\`. A read that sends it back as \`${minSequenceHeader}\` shows at least \
what was written there, at any node.

## The socket

\`GET ${socketPath}\` becomes a WebSocket of subprotocol \`svc.v1\`; browsers offer their credential beside it, as \
\`svc.auth.bearer.<base64url>\`. Each frame is one JSON text with a \`type\`. A client sends \`subscribe\` with a pattern \
and is answered by \`subscription_result\`; an \`event\` follows for each delivery, until \`unsubscribe\`. \`ack\` settles a \
delivery of a consumer group whose \`ack_mode\` is manual. Every frame has its schema, \`socket.{type}\`. The watches of \
buckets and config documents are WebSockets as well, on which clients say nothing.

## Schedules

\`cron\` of a trigger has five fields (minute, hour, day of the month, month, day of the week), or six with seconds first, \
or is \`@hourly\` and its like. \`CRON_TZ=Europe/Berlin \` or \`TZ=Europe/Berlin \` before the fields names a zone of the IANA \
time zone database; without one the fields are UTC. An expression for every hour goes by real time. Of any other each \
local time comes once: one that the clock skips comes as much later as the clock went forward, one that it shows twice \
comes with the first. When days of the month and of the week are both given, either is enough. A time that would be \
fired more than 10 seconds late is counted as missed.

## Errors

REST answers \`{"error", "message", "code", "field"?}\`, RPC \`{"code", "message"}\`. The same as data: \`x-svc-errors\`.

| code | status | in RPC | meaning |
| --- | --- | --- | --- |
${errorRows}

A 429 carries \`Retry-After\` in seconds. Clients pass over fields of answers that they do not know.`;

/** What the operations of a group are about, by the first part of their names. */
export const groups: Readonly<Record<string, string>> = {
  agentTools: "Tools that agents register, and calls to them.",
  alerts: "Rules that tell somebody when something goes wrong, and what they found.",
  attributes: "Names that runs are found by.",
  audit: "What callers did, were allowed and were refused.",
  auth: "Sessions of the dashboard.",
  batches: "Events that wait to start one run together.",
  breakers: "Circuit breakers of the endpoints of push functions.",
  capacity: "What workers have room for, and what waits; for the platform.",
  causality: "What led to a thing, and what it led to.",
  cluster: "Nodes of the installation and its secrets.",
  config: "JSON documents of an environment, with revisions.",
  deployments: "Builds of programs that are connected, and runs that are pinned to them.",
  debug: "The last requests of an org, to find out what a client sends.",
  debounce: "Repeated events that wait to start one run.",
  environments: "Environments: everything else stands in one.",
  errors: "Failures of runs that look alike.",
  events: "Events: emitting them, and reading the log.",
  flow: "Which functions, events and topics lead to which.",
  functions: "Functions: what runs, and what starts it.",
  groups: "Consumer groups: each delivery goes to one member.",
  integrity: "What must balance in the store.",
  issuers: "OpenID providers by which people sign in.",
  keys: "API keys.",
  kv: "Buckets of keys and values.",
  orgs: "Orgs: they own projects, users and keys.",
  outbox: "Messages that the bus did not take.",
  overview: "An environment at one look.",
  platform: "The installation: its tenants, users, roles and policies.",
  policies: "Deny policies.",
  policyTemplates: "Bundles of deny policies that come with svc.",
  projections: "Read models that are folded from events.",
  projects: "Projects: they group environments.",
  pubsub: "Subscriptions to events, topics and frames.",
  query: "Read-only SQL over an environment.",
  quotas: "What an environment may use.",
  repairs: "One action on many runs, in the background.",
  replays: "Starts of a function on events of the past, in the background.",
  retention: "How long events and runs are kept.",
  roles: "Roles of users and keys.",
  runs: "Runs of functions.",
  schedules: "Cron triggers of functions: their next slots, and those that were missed.",
  schemas: "JSON Schemas of events.",
  secrets: "Secrets that functions get.",
  server: "The server itself.",
  sessions: "Sign-in sessions of an org: who is in, and from where.",
  signIn: "How people of an org may sign in.",
  steps: "Steps of runs.",
  streams: "Streams of entities: events with versions.",
  tenants: "Orgs of the installation; for the platform.",
  timetravel: "The recorded past of runs.",
  topics: "Messages that start nothing.",
  usage: "What an environment used, by day and by function.",
  users: "Users of an org.",
  webhookEndpoints: "Webhooks out: events that are sent to URLs.",
  webhooks: "Webhooks in: sources and their deliveries.",
  workers: "Pull workers: registration, jobs and reports.",
};

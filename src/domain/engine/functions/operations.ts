import { Type } from "@sinclair/typebox";
import { actionsThatShow, allThingsOf, namesOfEvent, thingsOf } from "../../../gate/things.ts";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { listed, nothing, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { asGiven, requestOf } from "../../../kit/request.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import type { FunctionChange, FunctionRecord } from "./definition.ts";
import { definitionHash, type RegisterInput } from "./rules.ts";
import type { Functions, FunctionsPage } from "./service.ts";
import {
  fromRegisterMessage,
  type ServedRecord,
  statusWord,
  toFunctionMessage,
  toHistoryEntry,
} from "./wire.ts";

/** A pattern asks for all events that it matches. */
const eventThings = ({ event = "" }: TriggerInput): Thing[] => {
  if (event === "") return [];
  const names = namesOfEvent(event.replace(/>$/, "*"));
  return /[*>]/.test(event) ? allThingsOf("event", ...names) : thingsOf("event", ...names);
};

interface TriggerInput {
  event?: string | undefined;
}
/** What a definition lets its runs read. */
interface DeclaredReads {
  secrets?: readonly string[];
  triggers?: readonly TriggerInput[];
  cancelOn?: readonly TriggerInput[];
  /** Of a function in push mode: its jobs go there, and no worker's credential is asked about them. */
  endpointUrl?: string | undefined;
}

/**
 * The caller who registers a function must be allowed to read the secrets it declares and the events that
 * start it: its runs get their values. Which of them end by an event tells what the event holds. Those that
 * are sent to an endpoint may be of any stream.
 */
const readThings = ({ secrets = [], triggers = [], cancelOn = [], endpointUrl }: DeclaredReads) => [
  ...thingsOf("secret", ...secrets),
  ...[...triggers, ...cancelOn].flatMap(eventThings),
  ...(endpointUrl ? allThingsOf("stream") : []),
];

/** Actions that `readThings` asks for besides the operation's own. */
const alsoAsks = actionsThatShow("secret", "event", "stream");

const text = Type.Optional(Type.String());
const whole = Type.Optional(Type.Integer());
const Mode = Type.Optional(Type.Union([Type.Literal("pull"), Type.Literal("push")]));

/** The options of flow control, as part of the schema of a registration. */
const flowFields = {
  priority: Type.Optional(Type.Unknown()),
  throttle: Type.Optional(Type.Object({ limit: whole, periodMs: whole, burst: whole, key: text })),
  rateLimit: Type.Optional(Type.Object({ limit: whole, periodMs: whole, key: text })),
  idempotency: Type.Optional(Type.Object({ key: text, periodMs: whole })),
  singleton: Type.Optional(Type.Object({ mode: text, key: text })),
  startWithinMs: whole,
  batch: Type.Optional(Type.Object({ size: whole, timeoutMs: whole, key: text })),
  pin: Type.Optional(Type.Boolean()),
  pinGraceMs: whole,
  pinGone: text,
};

const Register = Type.Object({
  id: Type.String(),
  name: text,
  description: Type.Optional(Type.String({ maxLength: 4096 })),
  slug: text,
  triggers: Type.Optional(Type.Array(Type.Object({ event: text, expression: text, cron: text }))),
  retry: Type.Optional(
    Type.Object({
      maxAttempts: whole,
      initialDelayMs: whole,
      backoffFactor: Type.Optional(Type.Number()),
      maxDelayMs: whole,
    }),
  ),
  retryAttempts: whole,
  retryDelayMs: whole,
  retryBackoff: Type.Optional(Type.Number()),
  timeoutMs: whole,
  concurrency: Type.Optional(Type.Object({ limit: whole, key: text })),
  debounce: Type.Optional(Type.Object({ periodMs: whole, key: text, maxWaitMs: whole })),
  preferredMode: Mode,
  executionMode: Mode,
  endpointUrl: text,
  actorKey: text,
  recording: Type.Optional(Type.Boolean()),
  recordingProfile: text,
  recordingRetention: text,
  secrets: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { maxItems: 100 })),
  cancelOn: Type.Optional(Type.Array(Type.Object({ event: text, match: text }), { maxItems: 50 })),
  metadata: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  ...flowFields,
  changeReason: Type.Optional(Type.String({ maxLength: 1024 })),
  compensateOn: Type.Optional(Type.Array(Type.String(), { maxItems: 10 })),
  onFailure: Type.Optional(Type.Boolean()),
  nondeterminism: text,
  checked: Type.Optional(Type.Boolean()),
  attributes: Type.Optional(Type.Array(Type.Object({ name: text, path: text, type: text }))),
});

const Id = Type.String({ minLength: 1, maxLength: 400 });

/** What is known of the workers that serve these functions. */
async function served(
  serving: ConnectedWorkers,
  environmentId: string,
  records: readonly FunctionRecord[],
): Promise<ServedRecord[]> {
  const known = await serving.fresh(environmentId);
  if (!known) return [...records];
  return records.map((record) => {
    const { id, mode } = record.definition;
    const hashes = known.get(id);
    const unserved = mode === "pull" && hashes === undefined;
    return { ...record, unserved, definitionsDiffer: (hashes?.size ?? 0) > 1 };
  });
}

const read = { action: "functions:read", reads: true } as const;

export const functionsOperations = (functions: Functions, serving: ConnectedWorkers) => [
  unary({
    name: "functions.register",
    action: "functions:register",
    summary: "Registers a function, or a changed definition of it as its next version.",
    sample: {
      id: "send-receipt",
      name: "Send a receipt",
      triggers: [{ event: "order.placed", expression: "event.data.total > 100" }],
      retry: { maxAttempts: 5, initialDelayMs: 1_000, backoffFactor: 2, maxDelayMs: 60_000 },
      timeoutMs: 3_600_000,
      concurrency: { limit: 10, key: "data.customer" },
      secrets: ["MAIL_TOKEN"],
    },
    input: Register,
    about: ({ id, ...reading }: { id: string } & DeclaredReads) => [id, ...readThings(reading)],
    alsoAsks,
    rpc: rpc(
      SvcService.method.registerFunction,
      (m) =>
        fromRegisterMessage(m) as RegisterInput & {
          triggers: [];
          secrets: [];
          cancelOn: [];
          compensateOn: [];
          attributes: [];
        },
      ({ record, created, notices }: Awaited<ReturnType<Functions["register"]>>) => ({
        function: toFunctionMessage(record),
        ...{ created, notices },
        definitionHash: definitionHash(record.definition),
      }),
    ),
    handle: (input, call) => functions.register(call.environmentId, input as RegisterInput, call.caller.id),
  }),
  unary({
    name: "functions.get",
    ...read,
    summary: "One function, by id or slug.",
    ...requestOf(SvcService.method.getFunction, toFunctionMessage, { id: Id }),
    async handle(input, call) {
      const [shown] = await served(serving, call.environmentId, [
        await functions.get(call.environmentId, input.id),
      ]);
      return shown!;
    },
    finds: ({ definition: { id } }, input) => (id === input.id ? undefined : { id }),
  }),
  unary({
    name: "functions.list",
    action: "functions:list",
    summary: "Functions of the environment, newest first.",
    reads: true,
    input: Type.Object({
      name: Type.Optional(Type.String({ maxLength: searchBytesMax })),
      status: text,
      mode: text,
      limit: whole,
      offset: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 })),
      cursor: text,
    }),
    rpc: rpc(
      SvcService.method.listFunctions,
      ({ status: sent, ...m }) => {
        const status = statusWord(sent);
        if (sent !== 0 && !status) throw invalid("status", `unknown function status ${sent}`);
        return { ...asGiven(m), ...(status && { status }) };
      },
      (page: FunctionsPage) => ({
        functions: page.functions.map(toFunctionMessage),
        nextCursor: page.nextCursor ?? "",
        totalCount: page.totalCount,
      }),
    ),
    async handle(input, call) {
      const page = await functions.list(call.environmentId, input);
      return { ...page, functions: await served(serving, call.environmentId, page.functions) };
    },
    lists: listed(({ definition: { id, slug } }: FunctionRecord) => [id, slug], {
      under: "functions",
      also: "functions:read",
    }),
    alsoAsks: ["functions:read"],
  }),
  unary({
    name: "functions.setStatus",
    action: "functions:register",
    summary: "Pauses, resumes or archives a function.",
    input: Type.Object({
      id: Id,
      status: Type.Union([Type.Literal("active"), Type.Literal("paused"), Type.Literal("archived")]),
    }),
    rpc: rpc(
      SvcService.method.updateFunctionStatus,
      (m) => {
        const status = statusWord(m.status);
        if (!status) throw invalid("status", "must be active, paused or archived");
        return { id: m.id, status };
      },
      toFunctionMessage,
    ),
    handle: (input, call) => functions.setStatus(call.environmentId, input.id, input.status, call.caller.id),
  }),
  unary({
    name: "functions.delete",
    action: "functions:register",
    summary: "Deletes a function; queued runs are cancelled, begun ones finish.",
    ...requestOf(SvcService.method.deleteFunction, nothing, { id: Id }),
    async handle(input, call) {
      await functions.delete(call.environmentId, input.id, call.caller.id);
    },
  }),
  ...historyOperations(functions),
];

/** The recorded changes of a function, and the way back to one of them. */
const historyOperations = (functions: Functions) => [
  unary({
    name: "functions.history",
    ...read,
    summary: "Every change of a function, newest first; also of one that is deleted.",
    ...requestOf(
      SvcService.method.listFunctionHistory,
      (page: { entries: FunctionChange[]; hasMore: boolean }) => ({
        entries: page.entries.map(toHistoryEntry),
        hasMore: page.hasMore,
      }),
      { functionId: Id, fromVersion: Type.Optional(Type.Integer({ minimum: 0 })) },
    ),
    handle: ({ functionId, limit, fromVersion = 0 }, call) =>
      functions.history(call.environmentId, functionId, {
        ...(limit !== undefined && { limit }),
        ...(fromVersion > 0 && { before: fromVersion }),
      }),
  }),
  unary({
    name: "functions.at",
    ...read,
    summary: "A function as it stood after one of its changes.",
    ...requestOf(
      SvcService.method.getFunctionAtVersion,
      (entry: FunctionChange) => ({
        entry: toHistoryEntry(entry),
      }),
      { functionId: Id, version: Type.Integer({ minimum: 1 }) },
    ),
    handle: ({ functionId, version }, call) => functions.at(call.environmentId, functionId, version),
  }),
  unary({
    name: "functions.rollback",
    action: "functions:register",
    summary: "Makes what stood after an earlier change the next version.",
    about: ({ functionId, ...reading }: { functionId: string } & DeclaredReads) => [
      functionId,
      ...readThings(reading),
    ],
    alsoAsks,
    ...requestOf(
      SvcService.method.rollbackFunction,
      (record: FunctionRecord) => ({
        function: toFunctionMessage(record),
      }),
      {
        functionId: Id,
        version: Type.Integer({ minimum: 1 }),
        changeReason: Type.Optional(Type.String({ maxLength: 1024 })),
      },
    ),
    handle: ({ functionId, version, changeReason = "" }, call, permit) =>
      functions.rollback(
        call.environmentId,
        functionId,
        {
          entityVersion: version,
          reason: changeReason,
          permit: ({ secrets, triggers, cancelOn, endpointUrl }) =>
            permit({ functionId, secrets, triggers, cancelOn, endpointUrl }),
        },
        call.caller.id,
      ),
  }),
];

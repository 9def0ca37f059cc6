import { Type } from "@sinclair/typebox";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { listed, rpc, unary } from "../../../kit/operation.ts";
import { safeCount } from "../../../kit/wkt.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import { alsoAsks, type DeclaredReads, readThings } from "./declared-reads.ts";
import type { FunctionRecord } from "./definition.ts";
import type { FunctionChange } from "./history.ts";
import { definitionHash, type RegisterInput } from "./rules.ts";
import type { Functions, FunctionsPage } from "./service.ts";
import {
  fromRegisterMessage,
  type ServedRecord,
  statusWord,
  toFunctionMessage,
  toHistoryEntry,
} from "./wire.ts";

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
    action: "functions:read",
    summary: "One function, by id or slug.",
    reads: true,
    input: Type.Object({ id: Id }),
    rpc: rpc(
      SvcService.method.getFunction,
      (m) => ({ id: m.id }),
      (record: FunctionRecord) => toFunctionMessage(record),
    ),
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
      (m) => {
        const status = statusWord(m.status);
        if (m.status !== 0 && !status) throw invalid("status", `unknown function status ${m.status}`);
        return {
          ...(m.name && { name: m.name }),
          ...(status && { status }),
          ...(m.mode && { mode: m.mode }),
          limit: m.limit,
          offset: m.offset,
          ...(m.cursor && { cursor: m.cursor }),
        };
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
      (record: FunctionRecord) => toFunctionMessage(record),
    ),
    handle: (input, call) => functions.setStatus(call.environmentId, input.id, input.status, call.caller.id),
  }),
  unary({
    name: "functions.delete",
    action: "functions:register",
    summary: "Deletes a function; queued runs are cancelled, begun ones finish.",
    input: Type.Object({ id: Id }),
    rpc: rpc(
      SvcService.method.deleteFunction,
      (m) => ({ id: m.id }),
      () => ({}),
    ),
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
    action: "functions:read",
    reads: true,
    summary: "Every change of a function, newest first; also of one that is deleted.",
    input: Type.Object({
      functionId: Id,
      limit: whole,
      fromVersion: Type.Optional(Type.Integer({ minimum: 0 })),
    }),
    rpc: rpc(
      SvcService.method.listFunctionHistory,
      (m) => ({ functionId: m.functionId, limit: m.limit, fromVersion: safeCount(m.fromVersion) }),
      (page: { entries: FunctionChange[]; hasMore: boolean }) => ({
        entries: page.entries.map(toHistoryEntry),
        hasMore: page.hasMore,
      }),
    ),
    handle: ({ functionId, limit, fromVersion = 0 }, call) =>
      functions.history(call.environmentId, functionId, {
        ...(limit !== undefined && { limit }),
        ...(fromVersion > 0 && { before: fromVersion }),
      }),
  }),
  unary({
    name: "functions.at",
    action: "functions:read",
    reads: true,
    summary: "A function as it stood after one of its changes.",
    input: Type.Object({ functionId: Id, version: Type.Integer({ minimum: 1 }) }),
    rpc: rpc(
      SvcService.method.getFunctionAtVersion,
      (m) => ({ functionId: m.functionId, version: safeCount(m.version) }),
      (entry: FunctionChange) => ({ entry: toHistoryEntry(entry) }),
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
    input: Type.Object({
      functionId: Id,
      version: Type.Integer({ minimum: 1 }),
      changeReason: Type.Optional(Type.String({ maxLength: 1024 })),
    }),
    rpc: rpc(
      SvcService.method.rollbackFunction,
      (m) => ({ functionId: m.functionId, version: safeCount(m.version), changeReason: m.changeReason }),
      (record: FunctionRecord) => ({ function: toFunctionMessage(record) }),
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

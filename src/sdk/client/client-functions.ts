import type { EventRegistry } from "../steps/events.ts";
import { createFunction } from "../steps/function.ts";
import type { SvcFunction } from "../steps/svc-function.ts";
import { declaredAttributes } from "../wire/attributes.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { dataFields } from "../wire/payload.ts";
import { type Message, readFunction, readHistory, readResult } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { RpcOptions, Transport } from "../wire/transport.ts";
import type { EventMap } from "../wire/types.ts";
import { syncOptions, syncSlackMs, waitedMs } from "./client-events.ts";
import type { FunctionCalls, InvokeFunctionOptions } from "./client-types.ts";

const knownOfInvoke: KnownOptions<InvokeFunctionOptions> = { idempotencyKey: true, traceparent: true };

export const functionIdOf = (target: Pick<SvcFunction, "id"> | string): string =>
  typeof target === "string" ? target : target.id;

export function functionCalls<Events extends EventMap>(
  transport: Transport,
  registry: EventRegistry<Events> | undefined,
): FunctionCalls<Events> {
  const rpc = <Answer>(method: string, message: unknown, options: RpcOptions) =>
    transport.rpc<Answer>(`SvcService/${method}`, message, options);

  return {
    createFunction: (given, handler) =>
      registry ? registry.createFunction(given, handler) : (createFunction(given, handler as never) as never),

    async registerFunction({ mode, compensateOnCancel: _, attributes, ...definition }) {
      const pushes = mode === undefined ? definition.endpointUrl !== undefined : mode === "push";
      const preferredMode = pushes ? "EXECUTION_MODE_PUSH" : "EXECUTION_MODE_PULL";
      // Registering the same definition twice changes nothing, so the call may be repeated.
      const {
        created = false,
        definitionHash,
        ...answer
      } = await rpc<{
        function?: Message;
        created?: boolean;
        definitionHash?: string;
      }>(
        "RegisterFunction",
        {
          preferredMode,
          checked: true,
          ...definition,
          ...(attributes && { attributes: declaredAttributes(attributes) }),
        },
        safe,
      );
      return {
        function: readFunction(answer.function ?? {}),
        created,
        ...(definitionHash !== undefined && { definitionHash }),
      };
    },

    getFunction: async (id) => readFunction(await rpc("GetFunction", { id }, safe)),

    async listFunctions({ status, limit } = {}) {
      const message = { status: status && `FUNCTION_STATUS_${status.toUpperCase()}`, limit };
      const answer = await rpc<{ functions?: Message[] }>("ListFunctions", message, safe);
      return (answer.functions ?? []).map(readFunction);
    },

    async updateFunctionStatus(id, status) {
      const message = { id, status: `FUNCTION_STATUS_${status.toUpperCase()}` };
      return readFunction(await rpc("UpdateFunctionStatus", message, once));
    },

    async deleteFunction(id) {
      await rpc("DeleteFunction", { id }, once);
    },

    async listFunctionHistory(functionId, { limit, fromVersion } = {}) {
      const from = fromVersion === undefined ? undefined : String(fromVersion);
      const message = { functionId, limit, fromVersion: from };
      const answer = await rpc<{ entries?: Message[]; hasMore?: boolean }>(
        "ListFunctionHistory",
        message,
        safe,
      );
      return { entries: (answer.entries ?? []).map(readHistory), hasMore: answer.hasMore === true };
    },

    async getFunctionAtVersion(functionId, version) {
      const message = { functionId, version: String(version) };
      const answer = await rpc<{ entry?: Message }>("GetFunctionAtVersion", message, safe);
      return readHistory(answer.entry ?? {});
    },

    async rollbackFunction(functionId, version, { changeReason } = {}) {
      const message = { functionId, version: String(version), changeReason };
      const answer = await rpc<{ function?: Message }>("RollbackFunction", message, once);
      return readFunction(answer.function ?? {});
    },

    async invokeFunction(target, data, options = {}) {
      requireKnown("invokeFunction", options, knownOfInvoke);
      const { idempotencyKey, traceparent } = options;
      const answer = await rpc<Message>(
        "InvokeFunction",
        { functionId: functionIdOf(target), ...dataFields(data), idempotencyKey },
        { repeatable: idempotencyKey !== undefined, traceparent },
      );
      return { runId: String(answer.runId), eventId: String(answer.eventId ?? "") };
    },

    async invokeFunctionSync(target, data, options = {}) {
      const { timeoutMs, signal, traceparent, ...given } = syncOptions("invokeFunctionSync", options);
      const answer = await transport.rpc<{ result?: Message }>(
        "SvcService/InvokeFunctionSync",
        { functionId: functionIdOf(target), ...dataFields(data), timeoutMs: waitedMs(timeoutMs), ...given },
        {
          repeatable: given.idempotencyKey !== undefined,
          timeoutMs: timeoutMs + syncSlackMs,
          ...{ signal, traceparent },
        },
      );
      return readResult(answer.result ?? {}) as never;
    },
  };
}

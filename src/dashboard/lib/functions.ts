import { rpc } from "./api.ts";
import { instantOf, textOf } from "./format.ts";

/** A function as the pages show it; `definition` is all that the server says of it. */
export type FunctionView = ReturnType<typeof functionOf>;

export const functionOf = (m: Record<string, unknown>) => ({
  id: textOf(m.id),
  name: textOf(m.name) || textOf(m.id),
  description: textOf(m.description),
  status: textOf(m.status).replace("FUNCTION_STATUS_", "").toLowerCase(),
  version: Number(m.version ?? 0),
  triggers: (m.triggers ?? []) as readonly { event?: string; expression?: string; cron?: string }[],
  mode: textOf(m.preferredMode).replace("EXECUTION_MODE_", "").toLowerCase(),
  endpointUrl: textOf(m.endpointUrl),
  updatedAt: instantOf(textOf(m.updatedAt)),
  definition: m,
});

export async function listFunctions(
  asked: { name?: string; cursor?: string; limit: number },
  signal?: AbortSignal,
) {
  const found = await rpc("SvcService", "ListFunctions", asked, signal);
  const { functions = [], nextCursor = "", totalCount = 0 } = found;
  return { functions: functions.map(functionOf), nextCursor, totalCount };
}

export const getFunction = async (functionId: string, signal?: AbortSignal): Promise<FunctionView> =>
  functionOf(await rpc("SvcService", "GetFunction", { id: functionId }, signal));

export type FunctionChangeView = Awaited<ReturnType<typeof listChanges>>[number];

export async function listChanges(functionId: string, signal?: AbortSignal) {
  const { entries = [] } = await rpc("SvcService", "ListFunctionHistory", { functionId, limit: 50 }, signal);
  return entries.map((entry) => ({
    version: Number(entry.entityVersion ?? 0),
    type: textOf(entry.changeType),
    actor: textOf(entry.actorId),
    reason: textOf(entry.changeReason),
    at: instantOf(textOf(entry.recordedAt)),
    definition: (entry.functionSnapshot ?? {}) as Record<string, unknown>,
  }));
}

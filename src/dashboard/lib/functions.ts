import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";

/** A function as the pages show it; `definition` is all that the server says of it. */
export type FunctionView = ReturnType<typeof functionOf>;

const text = (value: unknown): string => (typeof value === "string" ? value : "");

export const functionOf = (m: Record<string, unknown>) => ({
  id: text(m.id),
  name: text(m.name) || text(m.id),
  description: text(m.description),
  status: text(m.status).replace("FUNCTION_STATUS_", "").toLowerCase(),
  version: Number(m.version ?? 0),
  triggers: (m.triggers ?? []) as readonly { event?: string; expression?: string; cron?: string }[],
  mode: text(m.preferredMode).replace("EXECUTION_MODE_", "").toLowerCase(),
  endpointUrl: text(m.endpointUrl),
  updatedAt: instantOf(text(m.updatedAt)),
  definition: m,
});

export async function listFunctions(
  asked: { name?: string; cursor?: string; limit: number },
  signal?: AbortSignal,
) {
  const {
    functions = [],
    nextCursor = "",
    totalCount = 0,
  } = await rpc("SvcService", "ListFunctions", asked, signal);
  return { functions: functions.map(functionOf), nextCursor, totalCount };
}

export const getFunction = async (functionId: string, signal?: AbortSignal): Promise<FunctionView> =>
  functionOf(await rpc("SvcService", "GetFunction", { id: functionId }, signal));

export interface FunctionChangeView {
  version: number;
  type: string;
  actor: string;
  reason: string;
  at: number | undefined;
  definition: Record<string, unknown>;
}

export async function listChanges(functionId: string, signal?: AbortSignal): Promise<FunctionChangeView[]> {
  const { entries = [] } = await rpc("SvcService", "ListFunctionHistory", { functionId, limit: 50 }, signal);
  return entries.map((entry) => ({
    version: Number(entry.entityVersion ?? 0),
    type: text(entry.changeType),
    actor: text(entry.actorId),
    reason: text(entry.changeReason),
    at: instantOf(text(entry.recordedAt)),
    definition: (entry.functionSnapshot ?? {}) as Record<string, unknown>,
  }));
}
